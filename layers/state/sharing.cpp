#include "layers/state/sharing.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

#include "execution/error.hpp"
#include "layers/state/repeats.hpp"

namespace stowage::layers {
namespace {

using execution::Bucket;
using execution::Lifetime;
using execution::Tensor;

bool is_bucket_of(const execution::PersistentLayout& layout, const Bucket& bucket,
                  Lifetime lifetime) {
  return !bucket.tensors.empty() && layout.whole(bucket.tensors.front()).lifetime == lifetime;
}

/// The bucket as a tensor of the program, with all its parts.
Tensor add_bucket(execution::Program& program, const execution::PersistentLayout& layout,
                  const Bucket& bucket) {
  for (const std::string& part : bucket.tensors) program.add(layout.info(part));
  return program.find(bucket.name);
}

}  // namespace

const parallel::RankGroup& Sharing::holders(const std::string& group) const {
  return ranks.group(parallel::gradient_group(group));
}

execution::Shards Sharing::summed(const std::string& group) const {
  return {zero ? holders(group).size() : 1, -1};
}

execution::Shards Sharing::updated(const std::string& group) const {
  if (!zero) return {};
  return {holders(group).size(), holders(group).rank()};
}

parallel::SumTree Sharing::tree(int microbatches) const {
  const parallel::SequencePart part = ranks.sequences();
  return {.each = microbatches, .rank = part.index, .ranks = part.parts};
}

bool one_tree(const parallel::GridShape& grid, bool tied) {
  using parallel::Axis;
  return grid[Axis::tensor] * grid[Axis::context] * grid[Axis::expert] == 1 &&
         (grid[Axis::pipeline] == 1 || !tied);
}

GradientBuckets::GradientBuckets(execution::Program& program,
                                 const execution::PersistentLayout& layout, const Sharing& sharing,
                                 const GradientTree* tree)
    : program_(program), layout_(layout), sharing_(sharing), tree_(tree) {
  for (const Bucket& bucket : layout.buckets())
    if (is_bucket_of(layout, bucket, Lifetime::gradient))
      missing_[bucket.name] = bucket.tensors.size();
}

void GradientBuckets::finished(std::span<const Parameter> parameters, bool exchange_follows) {
  sum_repeats(program_, layout_, sharing_.ranks.group(parallel::Group::tensor), parameters);
  for (const Parameter& parameter : parameters) {
    const Bucket& bucket = layout_.bucket_of(gradient_name(parameter.name));
    if (--missing_.at(bucket.name) == 0 && sharing_.holders(bucket.group).size() > 1)
      due_.push_back(&bucket);
  }
  if (!exchange_follows) sum_due();
}

void GradientBuckets::sum_due() {
  for (const Bucket* bucket : due_) append(*bucket);
  due_.clear();
}

void GradientBuckets::append(const Bucket& bucket) {
  program_.append(sum(bucket, {add_bucket(program_, layout_, bucket), {}}));
}

execution::Op GradientBuckets::sum(const Bucket& bucket, const parallel::Piece& whole) {
  const parallel::RankGroup& group = sharing_.holders(bucket.group);
  const std::string name = (sharing_.zero ? "reduce_scatter/" : "all_reduce/") + bucket.name;
  if (tree_ != nullptr)
    return group.add_by_tree(program_, name, whole, tree_->kept(bucket.name), tree_->tree(),
                             sharing_.zero, workspace(bucket));
  if (sharing_.zero)
    return group.reduce_scatter(program_, name, whole, wire(bucket), workspace(bucket));
  return group.all_reduce(program_, name, whole, parallel::Reduction::sum, wire(bucket),
                          workspace(bucket));
}

execution::Dtype GradientBuckets::wire(const Bucket& bucket) const {
  const bool rounds = sharing_.bf16_gradients && bucket.dtype == execution::Dtype::fp32;
  return rounds ? execution::Dtype::bf16 : bucket.dtype;
}

Tensor GradientBuckets::workspace(const Bucket& bucket) {
  const auto [found, added] = workspaces_.try_emplace(bucket.group);
  if (!added) return found->second;
  std::int64_t most = 0;
  for (const Bucket& other : layout_.buckets())
    if (other.group == bucket.group && is_bucket_of(layout_, other, Lifetime::gradient))
      most = std::max(most, other.elements);
  const std::string name = "reductions/" + bucket.group;
  if (tree_ != nullptr) {
    const std::size_t bytes = parallel::tree_workspace_bytes(most, bucket.dtype, tree_->tree());
    return found->second =
               program_.scratch(name, execution::Dtype::uint8, {static_cast<std::int64_t>(bytes)});
  }
  return found->second = sharing_.holders(bucket.group)
                             .workspace(program_, name, most, bucket.dtype, wire(bucket));
}

void gather_parameters(execution::Program& program, const execution::PersistentLayout& layout,
                       const Sharing& sharing, std::span<const Parameter> parameters) {
  if (!sharing.zero) return;
  std::map<std::string_view, std::size_t> finished;  // in backward
  for (const Parameter& p : parameters) finished.try_emplace(p.name, finished.size());
  std::vector<const Bucket*> buckets;
  for (const Bucket& bucket : layout.buckets())
    if (is_bucket_of(layout, bucket, Lifetime::parameter)) buckets.push_back(&bucket);
  std::ranges::sort(buckets, std::greater(),
                    [&](const Bucket* bucket) { return finished.at(bucket->tensors.back()); });
  for (const Bucket* bucket : buckets) {
    const parallel::RankGroup& group = sharing.holders(bucket->group);
    if (group.size() == 1) continue;
    program.append(group.all_gather(program, "all_gather/" + bucket->name,
                                    {add_bucket(program, layout, *bucket), {}}));
  }
}

}  // namespace stowage::layers
