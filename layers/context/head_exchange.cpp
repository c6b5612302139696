#include "layers/context/head_exchange.hpp"

namespace stowage::layers {

Tensor HeadExchange::to_sequence(Recorder& recorder, const std::string& name, Tensor x,
                                 kernels::ColumnBlocks blocks, std::string_view module) const {
  const std::int64_t ranks = group_->size(), tokens = recorder.tokens();
  const std::int64_t share = blocks.part_width(ranks);
  const Tensor parts = recorder.scratch(name + "_parts", {ranks, tokens, share});
  recorder.compute(name + "_split",
                   kernels::SplitColumns{tokens, ranks, blocks, recorder.storage()},
                   {.x = x, .parts = parts});
  const Tensor result = module.empty() ? recorder.scratch(name, {ranks * tokens, share})
                                       : recorder.saved(name, {ranks * tokens, share}, module);
  recorder.append(group_->all_to_all(recorder.program(), recorder.full_name("exchange_" + name),
                                     {parts, {}}, {result, {}}));
  return result;
}

void HeadExchange::to_rows(Recorder& recorder, const std::string& name, Tensor part,
                           kernels::ColumnBlocks blocks, Tensor y) const {
  const std::int64_t ranks = group_->size(), tokens = recorder.tokens();
  const execution::Dtype dtype = recorder.buffer(part).dtype;
  const std::int64_t share = blocks.part_width(ranks);
  const Tensor parts = recorder.scratch(name + "_parts", dtype, {ranks, tokens, share});
  recorder.append(group_->all_to_all(recorder.program(), recorder.full_name("exchange_" + name),
                                     {part, {}}, {parts, {}}));
  recorder.compute(name + "_join", kernels::JoinColumns{tokens, ranks, blocks, dtype},
                   {.parts = parts, .x = y});
}

}  // namespace stowage::layers
