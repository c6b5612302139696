#include "layers/partition.hpp"

#include "execution/error.hpp"

namespace stowage::layers {
namespace {

std::vector<std::int64_t> shape_of(Recorder& recorder, Tensor tensor) {
  return recorder.program().info(tensor).buffers.front().shape;
}

execution::Dtype dtype_of(Recorder& recorder, Tensor tensor) {
  return recorder.program().info(tensor).buffers.front().dtype;
}

}  // namespace

std::int64_t Partition::share(std::int64_t extent, const char* key) const {
  if (extent % parts != 0)
    execution::throw_usage("{} = {}: it is shared by {} ranks, so it must be a multiple of {}", key,
                           extent, parts, parts);
  return extent / parts;
}

int Partition::share(int extent, const char* key) const {
  return static_cast<int>(share(std::int64_t{extent}, key));
}

int Partition::copies(std::int64_t extent, const char* key) const {
  if (extent % parts != 0 && (extent <= 0 || parts % extent != 0))
    execution::throw_usage(
        "{} = {}: it is shared by {} ranks, so it must be a multiple of {} or divide it", key,
        extent, parts, parts);
  return extent < parts ? static_cast<int>(parts / extent) : 1;
}

int Partition::share_or_copy(int extent, const char* key) const {
  return extent * copies(extent, key) / parts;
}

std::vector<Cut> Partition::cut(int dimension, const std::vector<Block>& blocks) const {
  if (parts == 1) return {};
  Cut cut{dimension, {}};
  std::int64_t begin = 0;
  for (const auto& [extent, copies] : blocks) {
    const std::int64_t share = extent * copies / parts;
    const std::int64_t first = begin + index / copies * share;
    cut.ranges.push_back({first, first + share});
    begin += extent;
  }
  return {cut};
}

Tensor SharedRows::gather(Recorder& recorder, const std::string& name, Tensor mine) const {
  if (size() == 1) return mine;
  std::vector<std::int64_t> shape = shape_of(recorder, mine);
  shape.front() *= size();
  const Tensor all = recorder.scratch(name, dtype_of(recorder, mine), std::move(shape));
  gather_to(recorder, name, mine, all);
  return all;
}

void SharedRows::gather_to(Recorder& recorder, const std::string& name, Tensor mine,
                           Tensor all) const {
  recorder.append(group_->all_gather_from(recorder.program(), recorder.full_name("gather_" + name),
                                          {mine, {}}, {all, {}}));
}

Tensor SharedRows::reduce(Recorder& recorder, const std::string& name, Tensor summand) const {
  if (size() == 1) return summand;
  std::vector<std::int64_t> shape = shape_of(recorder, summand);
  shape.front() /= size();
  const Tensor mine = recorder.scratch(name, dtype_of(recorder, summand), std::move(shape));
  reduce_to(recorder, name, summand, mine);
  return mine;
}

void SharedRows::reduce_to(Recorder& recorder, const std::string& name, Tensor summand,
                           Tensor mine) const {
  recorder.append(group_->reduce_scatter_to(
      recorder.program(), recorder.full_name("reduce_" + name), {summand, {}}, {mine, {}}));
}

}  // namespace stowage::layers
