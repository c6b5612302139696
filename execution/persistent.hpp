#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::execution {

/// Elements that every persistent tensor is padded to inside its bucket: each then starts on a
/// 4 KiB page, which audit mode protects, those of one byte on half a page; and a parameter, its
/// master, its gradient and its states have the same element offset in their buckets. Shards of a
/// bucket are cut at multiples of it.
inline constexpr std::int64_t kBucketGrain = 2048;

/// How a bucket is shared out: in `parts` equal shards, of which a rank holds one, or all (-1).
struct Shards {
  int parts = 1;
  int held = -1;
};

/// A run of tensors of one dtype and lifetime, contiguous, that is reduced or updated as a whole.
struct Bucket {
  std::string name;   ///< "gradient/dense/0"
  std::string group;  ///< reduction group: "dense", "expert", or "" for what is not reduced
  Dtype dtype = Dtype::fp32;
  Shards shards;
  Region home = Region::persistent;  ///< or the host's memory
  std::size_t offset = 0;            ///< of what is held, in the home
  std::int64_t elements = 0;         ///< of all shards, padding included
  std::vector<std::string> tensors;

  /// The elements that this rank holds.
  Range held() const;
  /// Bytes of what is held.
  std::size_t bytes() const;
};

/// The one layout of all tensors that outlive a step, made from the model and the process grid.
/// Plans never change it, so every program of a run finds a tensor at the same address.
class PersistentLayout {
 public:
  /// Opens a bucket; tensors added from here on lie in it, in order.
  void open_bucket(std::string name, std::string group, Dtype dtype, Shards shards = {},
                   Region home = Region::persistent);
  void add(const TensorInfo& info);
  /// Places everything. Call it once, when all tensors are in.
  void close();

  /// True for a tensor, whole or in part, and for a bucket that holds bytes on this rank.
  bool has(const std::string& tensor) const { return places_.contains(tensor); }
  /// True for a tensor that lies in a bucket; a bucket itself is none.
  bool is_part(const std::string& tensor) const { return buckets_of_.contains(tensor); }
  const Bucket& bucket_of(const std::string& tensor) const;
  /// Where what is held of a tensor begins in what is held of its bucket, in elements.
  std::int64_t first_element(const std::string& tensor) const;
  /// Elements of a tensor that a rank holds, in row-major order: all, or those of its shard.
  Range held(const std::string& tensor) const;
  Range held(const std::string& tensor, int shard) const;
  /// Offset and bytes of what is held of a tensor or bucket; the handle in it is not set.
  /// @throws Error if there is no such tensor
  const Place& place(const std::string& tensor) const;
  /// The facts of what is held: (elements) of a tensor of which this rank holds a part.
  const TensorInfo& info(const std::string& tensor) const;
  /// The facts of a tensor on all ranks that hold its shards.
  const TensorInfo& whole(const std::string& tensor) const;
  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::size_t bytes() const { return bytes_; }            ///< of device memory
  std::size_t host_bytes() const { return host_bytes_; }  ///< of what has its home on the host
  bool on_host(const std::string& tensor) const { return place(tensor).region == Region::host; }
  /// Bytes of a lifetime class in a home, padding included.
  std::size_t bytes(Lifetime lifetime, Region home = Region::persistent) const;

 private:
  void place_bucket(std::size_t index);
  void place_tensor(const Bucket& bucket, const TensorInfo& info);

  struct InBucket {
    std::size_t bucket;  ///< index
    std::int64_t first;  ///< element of the bucket, all shards counted
  };
  const InBucket& in_bucket(const std::string& tensor) const;

  std::vector<Bucket> buckets_;
  std::unordered_map<std::string, Place> places_;
  std::unordered_map<std::string, TensorInfo> infos_;   ///< what is held
  std::unordered_map<std::string, TensorInfo> wholes_;  ///< tensors
  std::unordered_map<std::string, InBucket> buckets_of_;
  std::size_t bytes_ = 0, host_bytes_ = 0;
};

}  // namespace stowage::execution
