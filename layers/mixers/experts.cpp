#include "layers/mixers/experts.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/moe/capacity.hpp"
#include "kernels/moe/permute.hpp"
#include "kernels/moe/slots.hpp"
#include "kernels/shards/shards.hpp"

namespace stowage::layers {

using execution::Dtype;
using execution::Range;

namespace {

/// Not where all ranks get all rows anyway, for the shared expert that they also share and that
/// takes the same rows.
bool travel_by_slots(const ModelConfig& config, const parallel::Ranks& ranks) {
  const int size = ranks.group(parallel::Group::experts).size();
  const bool all_needed = config.moe.shared_ffn > 0 && config.moe.latent == 0 &&
                          size == ranks.group(parallel::Group::tensor).size();
  return size > 1 && !all_needed && config.moe.exchange == ModelConfig::Moe::Exchange::slots;
}

/// The part of all rows that have experts of one of the ranks, if every choice of R different
/// experts is as likely as any other: those that chose none of it are R draws from the others'.
double part_for_rank(const ModelConfig::Moe& moe, int ranks) {
  const double others = moe.experts - static_cast<double>(moe.experts) / ranks;
  double none = 1;
  for (int i = 0; i < moe.topk; ++i) none *= std::max(0.0, others - i) / (moe.experts - i);
  return 1 - none;
}

}  // namespace

kernels::ExpertCapacity expert_capacity(const ModelConfig& config, const parallel::Ranks& ranks,
                                        std::int64_t tokens, double factor) {
  const int size = ranks.group(parallel::Group::experts).size();
  const std::int64_t rows = tokens / ranks.group(parallel::Group::tensor).size() /
                            ranks.group(parallel::Group::context).size();
  const std::int64_t balanced = rows * config.moe.topk;
  const bool slots = travel_by_slots(config, ranks);
  if (factor == 0 || factor >= size) return {balanced * size, slots ? rows : 0};
  const auto part = [factor](double all) {
    return static_cast<std::int64_t>(std::ceil(factor * all));
  };
  const double to_one = static_cast<double>(rows) * part_for_rank(config.moe, size);
  return {part(static_cast<double>(balanced)), slots ? std::min(rows, part(to_one)) : 0};
}

SharedExperts::SharedExperts(const ModelConfig& config, const parallel::Ranks& ranks)
    : experts_(config.moe.experts),
      topk_(config.moe.topk),
      tensor_size_(ranks.group(parallel::Group::tensor).size()),
      by_slots_(travel_by_slots(config, ranks)),
      context_(ranks.shared_group(parallel::Group::context)),
      group_(ranks.shared_group(parallel::Group::experts)),
      partition_(ranks.group(parallel::Group::experts)),
      rows_(group_) {
  (void)partition_.share(experts_, "model.num_moe_experts");
}

std::int64_t SharedExperts::received(const Recorder& recorder) const {
  return rows_.size() * (by_slots_ ? recorder.batch().expert_capacity.slots : recorder.rows());
}

SharedExperts::AllChoices SharedExperts::learn(Recorder& recorder, const Choices& choices) const {
  return {rows_.gather(recorder, "indices_all", choices.indices),
          rows_.gather(recorder, "weights_all", choices.weights)};
}

Routed SharedExperts::route(Recorder& recorder, Choices& choices, const AllChoices& all) const {
  if (rows_.size() == 1) {
    const Routed routed = sort(recorder, all.indices, all.weights);
    choices.offsets = choices.load = routed.offsets;
    if (context_->size() > 1) choices.offsets = offsets_of_tokens(recorder, choices.indices);
    return routed;
  }
  choices.load = recorder.saved("load", Dtype::int32, {experts_ + 1}, "");
  count(recorder, "count", choices.indices, {}, choices.load);
  choices.offsets = choices.load;
  if (tensor_size_ * context_->size() > 1)  // ranks that have the same sequences
    choices.offsets = offsets_of_tokens(recorder, all.indices);
  const std::int64_t own = this->own(), first = partition_.index * own;
  const Tensor local = recorder.scratch("indices_local", Dtype::int32, {tokens(recorder), topk_});
  recorder.compute("localise", kernels::Localise{tokens(recorder) * topk_, first, own},
                   {.ids = all.indices, .local = local});
  Routed routed = sort(recorder, local, all.weights);
  if (by_slots_) find_slots(recorder, choices.indices, local, routed);
  return routed;
}

void SharedExperts::find_slots(Recorder& recorder, Tensor indices, Tensor local,
                               Routed& routed) const {
  const std::int64_t ranks = rows_.size(), slots = recorder.batch().expert_capacity.slots;
  routed.row_slot = recorder.saved("row_slot", Dtype::int32, {recorder.rows(), ranks}, "");
  const Tensor wanted = recorder.scratch("slots_wanted", Dtype::int32, {ranks});
  recorder.compute(
      "send_slots",
      kernels::SendSlots{
          .rows = recorder.rows(), .topk = topk_, .ranks = ranks, .share = own(), .slots = slots},
      {.indices = indices, .row_slot = routed.row_slot, .wanted = wanted});
  if (const Tensor demand = recorder.program().find(kDemand))
    recorder.compute("limit_slots", kernels::LimitSlots{ranks},
                     {.wanted = wanted, .demand = demand});
  routed.received_row =
      recorder.saved("received_row", Dtype::int32, {received(recorder), topk_}, "");
  recorder.compute(
      "receive_slots",
      kernels::ReceiveSlots{.rows = recorder.rows(), .topk = topk_, .ranks = ranks, .slots = slots},
      {.local = local, .token_row = routed.token_row, .slot_row = routed.received_row});
}

Tensor SharedExperts::send(Recorder& recorder, const std::string& name, Tensor mine,
                           const Routed& routed) const {
  if (!by_slots_) return rows_.gather(recorder, name, mine);
  const std::int64_t width = recorder.buffer(mine).shape.back();
  const Tensor slots = recorder.scratch(name + "_slots", {received(recorder), width});
  recorder.compute("slot_" + name,
                   kernels::GatherRows{.tokens = recorder.rows(),
                                       .topk = rows_.size(),
                                       .rows = received(recorder),
                                       .width = width,
                                       .routed = received(recorder),
                                       .storage = recorder.storage()},
                   {.x = mine, .token_row = routed.row_slot, .xs = slots});
  const Tensor there = recorder.scratch(name, {received(recorder), width});
  recorder.append(group_->all_to_all(recorder.program(), recorder.full_name("exchange_" + name),
                                     {slots, {}}, {there, {}}));
  return there;
}

AllRows SharedExperts::send_each(Recorder& recorder, const std::string& name, Tensor mine,
                                 const Routed& routed) const {
  if (!by_slots_) return rows_.gather_each(recorder, name, mine);
  const Tensor there = send(recorder, name, mine, routed);
  return {there, there};
}

SharedRows::Summands SharedExperts::send_back(Recorder& recorder, const std::string& name,
                                              Tensor summand,
                                              const SharedRows::MakeRows& make) const {
  if (!by_slots_) return rows_.send_partials_each(recorder, name, summand, make);
  make(summand, {});
  const std::int64_t width = recorder.buffer(summand).shape.back();
  const Tensor slots = recorder.scratch(name + "_slots", {received(recorder), width});
  recorder.append(group_->all_to_all(recorder.program(), recorder.full_name("exchange_" + name),
                                     {summand, {}}, {slots, {}}));
  return {name, summand, slots};
}

Tensor SharedExperts::sum(Recorder& recorder, const SharedRows::Summands& summands,
                          const Routed& routed, Tensor mine) const {
  if (!by_slots_ && !mine) return rows_.sum(recorder, summands);
  if (!by_slots_) {
    rows_.sum_to(recorder, summands, mine);
    return mine;
  }
  const Tensor slots = summands.others;
  const std::int64_t width = recorder.buffer(slots).shape.back();
  if (!mine) mine = recorder.scratch(summands.name, {recorder.rows(), width});
  recorder.compute("add_" + summands.name,
                   kernels::CombineRows{.tokens = recorder.rows(),
                                        .topk = rows_.size(),
                                        .rows = received(recorder),
                                        .width = width,
                                        .routed = received(recorder),
                                        .storage = recorder.storage(),
                                        .accumulate = false},
                   {.ys = slots, .token_row = routed.row_slot, .out = mine});
  return mine;
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
  const std::int64_t n = tokens(recorder), own = this->own();
  const Dtype accum = recorder.accumulation();
  Routed routed{recorder.saved("offsets", Dtype::int32, {own + 1}, ""),
                recorder.saved("token_row", Dtype::int32, {n, topk_}, ""),
                recorder.saved("row_weight", accum, {capacity(recorder)}, ""),
                {},
                {}};
  routed.received_row = routed.token_row;
  const Tensor demand = recorder.program().find(kDemand);
  const Tensor wanted =
      demand ? recorder.scratch("offsets_wanted", Dtype::int32, {own + 1}) : routed.offsets;
  recorder.compute("permute_index",
                   kernels::PermuteIndex{.tokens = n,
                                         .topk = topk_,
                                         .experts = own,
                                         .rows = capacity(recorder),
                                         .storage = recorder.storage()},
                   {.indices = indices,
                    .offsets = wanted,
                    .token_row = routed.token_row,
                    .row_weight = routed.row_weight,
                    .weights = weights});
  if (demand)
    recorder.compute("limit_offsets",
                     kernels::LimitOffsets{.experts = own, .capacity = capacity(recorder)},
                     {.wanted = wanted, .offsets = routed.offsets, .demand = demand});
  return routed;
}

void SharedExperts::count(Recorder& recorder, const char* name, Tensor indices, Range range,
                          Tensor offsets) const {
  const std::int64_t pairs = range == Range{} ? recorder.rows() * topk_ : range.end - range.begin;
  recorder.compute(name, kernels::ExpertOffsets{pairs, experts_},
                   {.indices = {indices, range}, .offsets = offsets});
}

SharedExperts::WeightGradient SharedExperts::weight_gradient(Recorder& recorder,
                                                             const Choices& choices,
                                                             const Routed& routed,
                                                             Tensor drow_weight) const {
  if (rows_.size() == 1) return {rows_.send_partials(recorder, "", drow_weight), routed.token_row};
  const Dtype accum = recorder.accumulation();
  const std::int64_t pairs = tokens(recorder) * topk_;
  const Tensor all = recorder.scratch("dweights_all", accum, {pairs});
  recorder.compute("pair_values",
                   kernels::PairValues{recorder.buffer(drow_weight).elements(), pairs, accum},
                   {.rows = drow_weight, .token_row = routed.token_row, .pairs = all});
  const Tensor rows = recorder.scratch("pair_rows", Dtype::int32, {recorder.rows(), topk_});
  recorder.compute("pair_rows", kernels::PairRows{recorder.rows() * topk_},
                   {.indices = choices.indices, .rows = rows});
  return {rows_.send_partials(recorder, "dweights", all), rows};
}

}  // namespace stowage::layers
