#include "execution/persistent.hpp"

#include "execution/error.hpp"

namespace stowage::execution {

void PersistentLayout::open_bucket(std::string name, std::string group, Dtype dtype, int shards) {
  pad_last();
  shards_ = shards;
  buckets_.push_back({std::move(name), std::move(group), dtype, bytes_, 0, {}});
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
  Place place;
  place.region = Region::persistent;
  place.offset = bucket.offset + bucket.bytes();
  place.bytes = info.bytes();
  STOWAGE_ASSERT(places_.emplace(info.name, place).second, "{} is laid out twice", info.name);
  infos_.emplace(info.name, info);
  if (bucket.name != info.name) buckets_of_.emplace(info.name, buckets_.size() - 1);
  bucket.tensors.push_back(info.name);
  const std::int64_t grains = (info.buffers[0].elements() + kBucketGrain - 1) / kBucketGrain;
  bucket.elements += grains * kBucketGrain;
  bytes_ = align_up(bucket.offset + bucket.bytes());
}

void PersistentLayout::close() { pad_last(); }

void PersistentLayout::pad_last() {
  if (buckets_.empty()) return;
  Bucket& bucket = buckets_.back();
  const std::int64_t unit = kBucketGrain * shards_;
  bucket.elements = (bucket.elements + unit - 1) / unit * unit;
  bytes_ = align_up(bucket.offset + bucket.bytes());
  if (bucket.tensors.empty() || has(bucket.name)) return;
  places_.emplace(bucket.name, Place{{}, 0, Region::persistent, bucket.offset, bucket.bytes()});
  infos_.emplace(bucket.name, one_buffer(bucket.name, bucket.dtype, {bucket.elements},
                                         infos_.at(bucket.tensors.front()).lifetime));
}

const Bucket& PersistentLayout::bucket_of(const std::string& tensor) const {
  const auto found = buckets_of_.find(tensor);
  STOWAGE_ASSERT(found != buckets_of_.end(), "{} lies in no bucket", tensor);
  return buckets_[found->second];
}

std::int64_t PersistentLayout::first_element(const std::string& tensor) const {
  const Bucket& bucket = bucket_of(tensor);
  return static_cast<std::int64_t>((place(tensor).offset - bucket.offset) /
                                   size_bytes(bucket.dtype));
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

std::size_t PersistentLayout::bytes(Lifetime lifetime) const {
  std::size_t sum = 0;
  for (const Bucket& bucket : buckets_)
    if (!bucket.tensors.empty() && infos_.at(bucket.tensors.front()).lifetime == lifetime)
      sum += bucket.bytes();
  return sum;
}

}  // namespace stowage::execution
