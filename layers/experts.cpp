#include "layers/experts.hpp"

#include <cmath>

#include "kernels/moe/permute.hpp"
#include "kernels/moe/room.hpp"
#include "kernels/shards/shards.hpp"

namespace stowage::layers {

using execution::Dtype;
using execution::Range;
using Views = std::span<const execution::View>;

std::int64_t expert_room(const ModelConfig& config, const parallel::Ranks& ranks,
                         std::int64_t tokens, double share) {
  const int size = ranks.group(parallel::Group::experts).size();
  const std::int64_t balanced = tokens / ranks.group(parallel::Group::tensor).size() /
                                ranks.group(parallel::Group::context).size() * config.moe.topk;
  if (share == 0 || share >= size) return balanced * size;
  return static_cast<std::int64_t>(std::ceil(share * static_cast<double>(balanced)));
}

SharedExperts::SharedExperts(const ModelConfig& config, const parallel::Ranks& ranks)
    : experts_(config.moe.experts),
      topk_(config.moe.topk),
      tensor_size_(ranks.group(parallel::Group::tensor).size()),
      context_(ranks.shared_group(parallel::Group::context)),
      partition_(ranks.group(parallel::Group::experts)),
      rows_(ranks.shared_group(parallel::Group::experts)) {
  (void)partition_.share(experts_, "model.num_moe_experts");
}

Routed SharedExperts::route(Recorder& recorder, Choices& choices) const {
  if (rows_.size() == 1) {
    const Routed routed = sort(recorder, choices.indices, choices.weights);
    choices.offsets = choices.load = routed.offsets;
    if (context_->size() > 1) choices.offsets = offsets_of_tokens(recorder, choices.indices);
    return routed;
  }
  const Tensor indices = rows_.gather(recorder, "indices_all", choices.indices);
  const Tensor weights = rows_.gather(recorder, "weights_all", choices.weights);
  choices.load = recorder.saved("load", Dtype::int32, {experts_ + 1}, "");
  count(recorder, "count", choices.indices, {}, choices.load);
  choices.offsets = choices.load;
  if (tensor_size_ * context_->size() > 1)  // ranks that have the same sequences
    choices.offsets = offsets_of_tokens(recorder, indices);
  const std::int64_t own = experts_ / partition_.parts, first = partition_.index * own;
  const Tensor local = recorder.scratch("indices_local", Dtype::int32, {tokens(recorder), topk_});
  recorder.compute(
      "localise", kernels::localise_cost(tokens(recorder) * topk_), {read(indices), write(local)},
      [first, own](execution::Queue& q, Views v) { kernels::localise(q, v[0], first, own, v[1]); });
  return sort(recorder, local, weights);
}

Tensor SharedExperts::offsets_of_tokens(Recorder& recorder, Tensor indices) const {
  const Tensor offsets = recorder.saved("offsets_of_tokens", Dtype::int32, {experts_ + 1}, "");
  const std::int64_t pairs = recorder.rows() * tensor_size_ * topk_;
  const std::int64_t first = rows_.rank() / tensor_size_ * pairs;
  count(recorder, "count_tokens", indices, {first, first + pairs}, offsets);
  if (context_->size() > 1)
    recorder.append(context_->all_reduce(recorder.program(), recorder.full_name("sum_counts"),
                                         {offsets, {}}, parallel::Reduction::sum));
  return offsets;
}

Routed SharedExperts::sort(Recorder& recorder, Tensor indices, Tensor weights) const {
  const std::int64_t n = tokens(recorder), own = experts_ / partition_.parts;
  const Dtype accum = recorder.accumulation();
  const Routed routed{recorder.saved("offsets", Dtype::int32, {own + 1}, ""),
                      recorder.saved("token_row", Dtype::int32, {n, topk_}, ""),
                      recorder.saved("row_weight", accum, {room(recorder)}, "")};
  const Tensor most = recorder.program().find(kMostRows);
  const Tensor wanted =
      most ? recorder.scratch("offsets_wanted", Dtype::int32, {own + 1}) : routed.offsets;
  recorder.compute("permute_index", kernels::permute_index_cost(n, topk_, own, accum),
                   {read(indices), write(wanted), write(routed.token_row), write(routed.row_weight),
                    read(weights)},
                   [](execution::Queue& q, Views v) {
                     kernels::permute_index(q, v[0], v[1], v[2], v[3], v[4]);
                   });
  if (most)
    recorder.compute("limit_offsets", kernels::limit_offsets_cost(own),
                     {read(wanted), write(routed.offsets), update(most)},
                     [room = room(recorder)](execution::Queue& q, Views v) {
                       kernels::limit_offsets(q, v[0], room, v[1], v[2]);
                     });
  return routed;
}

void SharedExperts::count(Recorder& recorder, const char* name, Tensor indices, Range range,
                          Tensor offsets) const {
  recorder.compute(name, kernels::expert_offsets_cost(recorder.rows() * topk_, experts_),
                   {{indices, Access::read, range}, write(offsets)},
                   [](execution::Queue& q, Views v) { kernels::expert_offsets(q, v[0], v[1]); });
}

SharedExperts::WeightGradient SharedExperts::weight_gradient(Recorder& recorder,
                                                             const Choices& choices,
                                                             const Routed& routed,
                                                             Tensor drow_weight) const {
  if (rows_.size() == 1) return {drow_weight, routed.token_row};
  const Dtype accum = recorder.accumulation();
  const std::int64_t pairs = tokens(recorder) * topk_;
  const Tensor all = recorder.scratch("dweights_all", accum, {pairs});
  recorder.compute("pair_values", kernels::pair_values_cost(pairs, accum),
                   {read(drow_weight), read(routed.token_row), write(all)},
                   [](execution::Queue& q, Views v) { kernels::pair_values(q, v[0], v[1], v[2]); });
  const Tensor rows = recorder.scratch("pair_rows", Dtype::int32, {recorder.rows(), topk_});
  recorder.compute("pair_rows", kernels::localise_cost(recorder.rows() * topk_),
                   {read(choices.indices), write(rows)},
                   [](execution::Queue& q, Views v) { kernels::pair_rows(q, v[0], v[1]); });
  return {rows_.reduce(recorder, "dweights", all), rows};
}

}  // namespace stowage::layers
