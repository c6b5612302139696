#include "execution/persistent.hpp"

#include <algorithm>

#include "execution/error.hpp"

namespace stowage::execution {
namespace {

std::int64_t padded(std::int64_t elements, std::int64_t unit) {
  return (elements + unit - 1) / unit * unit;
}

/// Elements of a shard of a bucket.
Range shard_of(const Bucket& bucket, int shard) {
  const std::int64_t share = bucket.elements / bucket.shards.parts;
  return shard < 0 ? Range{0, bucket.elements} : Range{shard * share, (shard + 1) * share};
}

}  // namespace

Range Bucket::held() const { return shard_of(*this, shards.held); }

std::size_t Bucket::bytes() const {
  const Range range = held();
  return static_cast<std::size_t>(range.end - range.begin) * size_bytes(dtype);
}

void PersistentLayout::open_bucket(std::string name, std::string group, Dtype dtype, Shards shards,
                                   Region home) {
  buckets_.push_back({std::move(name), std::move(group), dtype, shards, home, 0, 0, {}});
}

void PersistentLayout::add(const TensorInfo& info) {
  STOWAGE_ASSERT(!buckets_.empty(), "no bucket is open for {}", info.name);
  Bucket& bucket = buckets_.back();
  STOWAGE_ASSERT(is_persistent(info.lifetime), "{} does not outlive a step", info.name);
  STOWAGE_ASSERT(info.buffers.size() == 1, "persistent tensor {} has {} buffers", info.name,
                 info.buffers.size());
  STOWAGE_ASSERT(info.buffers[0].dtype == bucket.dtype, "{} is {} in bucket {} of {}", info.name,
                 stowage::execution::name(info.buffers[0].dtype), bucket.name,
                 stowage::execution::name(bucket.dtype));
  STOWAGE_ASSERT(wholes_.emplace(info.name, info).second, "{} is laid out twice", info.name);
  buckets_of_.emplace(info.name, InBucket{buckets_.size() - 1, bucket.elements});
  bucket.tensors.push_back(info.name);
  bucket.elements += padded(info.buffers[0].elements(), kBucketGrain);
}

void PersistentLayout::close() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) place_bucket(i);
}

void PersistentLayout::place_bucket(std::size_t index) {
  Bucket& bucket = buckets_[index];
  bucket.elements = padded(bucket.elements, kBucketGrain * bucket.shards.parts);
  std::size_t& end = bucket.home == Region::host ? host_bytes_ : bytes_;
  bucket.offset = end;
  end = align_up(end + bucket.bytes());
  for (const std::string& tensor : bucket.tensors) place_tensor(bucket, wholes_.at(tensor));
  if (bucket.tensors.empty() || has(bucket.name)) return;
  const Range range = bucket.held();
  places_.emplace(bucket.name, Place{{}, 0, bucket.home, bucket.offset, bucket.bytes()});
  infos_.emplace(bucket.name, one_buffer(bucket.name, bucket.dtype, {range.end - range.begin},
                                         wholes_.at(bucket.tensors.front()).lifetime));
}

void PersistentLayout::place_tensor(const Bucket& bucket, const TensorInfo& info) {
  const Range range = held(info.name);
  if (range.begin == range.end) return;
  TensorInfo local = info;
  if (range != Range{0, info.buffers[0].elements()})
    local.buffers[0].shape = {range.end - range.begin};
  Place place;
  place.region = bucket.home;
  place.offset =
      bucket.offset + static_cast<std::size_t>(first_element(info.name)) * size_bytes(bucket.dtype);
  place.bytes = local.bytes();
  places_.emplace(info.name, place);
  infos_.emplace(info.name, std::move(local));
}

const PersistentLayout::InBucket& PersistentLayout::in_bucket(const std::string& tensor) const {
  const auto found = buckets_of_.find(tensor);
  STOWAGE_ASSERT(found != buckets_of_.end(), "{} lies in no bucket", tensor);
  return found->second;
}

const Bucket& PersistentLayout::bucket_of(const std::string& tensor) const {
  return buckets_[in_bucket(tensor).bucket];
}

std::int64_t PersistentLayout::first_element(const std::string& tensor) const {
  return std::max<std::int64_t>(0, in_bucket(tensor).first - bucket_of(tensor).held().begin);
}

Range PersistentLayout::held(const std::string& tensor) const {
  return held(tensor, bucket_of(tensor).shards.held);
}

Range PersistentLayout::held(const std::string& tensor, int shard) const {
  const Range range = shard_of(bucket_of(tensor), shard);
  const std::int64_t first = in_bucket(tensor).first;
  const std::int64_t elements = whole(tensor).buffers[0].elements();
  return {std::clamp<std::int64_t>(range.begin - first, 0, elements),
          std::clamp<std::int64_t>(range.end - first, 0, elements)};
}

const Place& PersistentLayout::place(const std::string& tensor) const {
  const auto found = places_.find(tensor);
  STOWAGE_ASSERT(found != places_.end(), "no persistent place for tensor {}", tensor);
  return found->second;
}

const TensorInfo& PersistentLayout::info(const std::string& tensor) const {
  const auto found = infos_.find(tensor);
  STOWAGE_ASSERT(found != infos_.end(), "no persistent tensor {}", tensor);
  return found->second;
}

const TensorInfo& PersistentLayout::whole(const std::string& tensor) const {
  const auto found = wholes_.find(tensor);
  STOWAGE_ASSERT(found != wholes_.end(), "no persistent tensor {}", tensor);
  return found->second;
}

std::size_t PersistentLayout::bytes(Lifetime lifetime, Region home) const {
  std::size_t sum = 0;
  for (const Bucket& bucket : buckets_)
    if (bucket.home == home && !bucket.tensors.empty() &&
        wholes_.at(bucket.tensors.front()).lifetime == lifetime)
      sum += bucket.bytes();
  return sum;
}

}  // namespace stowage::execution
