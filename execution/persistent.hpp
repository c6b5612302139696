#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::execution {

/// Elements that every persistent tensor is padded to inside its bucket: the start of each is then
/// on a 4 KiB page (audit mode needs that) for two-byte elements and wider ones, and a parameter,
/// its master, its gradient and its states have the same element offset in their buckets.
inline constexpr std::int64_t kBucketGrain = 2048;

/// A run of tensors of one dtype and lifetime, contiguous, that is reduced or updated as a whole.
struct Bucket {
  std::string name;   ///< "gradient/dense/0"
  std::string group;  ///< reduction group: "dense", "expert", or "" for what is not reduced
  Dtype dtype = Dtype::fp32;
  std::size_t offset = 0;     ///< in the persistent region
  std::int64_t elements = 0;  ///< padding included
  std::vector<std::string> tensors;

  std::size_t bytes() const { return static_cast<std::size_t>(elements) * size_bytes(dtype); }
};

/// The one layout of all tensors that outlive a step, made from the model and the process grid.
/// Plans never change it, so every program of a run finds a tensor at the same address.
class PersistentLayout {
 public:
  /// Opens a bucket; tensors added from here on lie in it, in order.
  /// @param shards pads the bucket so that it divides into this many equal, aligned parts
  void open_bucket(std::string name, std::string group, Dtype dtype, int shards = 1);
  void add(const TensorInfo& info);
  /// Pads and closes the last bucket. Call it once, when all tensors are in.
  void close();

  bool has(const std::string& tensor) const { return places_.contains(tensor); }
  /// True for a tensor that lies in a bucket; a bucket itself is none.
  bool is_part(const std::string& tensor) const { return buckets_of_.contains(tensor); }
  const Bucket& bucket_of(const std::string& tensor) const;
  /// Where a tensor begins in its bucket, in elements.
  std::int64_t first_element(const std::string& tensor) const;
  /// Offset and bytes of the only buffer of a tensor or bucket; the handle in it is not set.
  /// @throws Error if there is no such tensor
  const Place& place(const std::string& tensor) const;
  const TensorInfo& info(const std::string& tensor) const;
  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::size_t bytes() const { return bytes_; }
  /// Bytes of a lifetime class, padding included.
  std::size_t bytes(Lifetime lifetime) const;

 private:
  void pad_last();

  std::vector<Bucket> buckets_;
  std::unordered_map<std::string, Place> places_;
  std::unordered_map<std::string, TensorInfo> infos_;
  std::unordered_map<std::string, std::size_t> buckets_of_;  ///< by tensor: index of its bucket
  std::size_t bytes_ = 0;
  int shards_ = 1;
};

}  // namespace stowage::execution
