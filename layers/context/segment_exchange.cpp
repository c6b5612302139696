#include "layers/context/segment_exchange.hpp"

#include <utility>

#include "execution/error.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv1d/halo.hpp"
#include "kernels/ssd/segment.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

using Views = std::span<const execution::View>;
using kernels::ColumnsOf;

namespace {

constexpr std::int64_t kHalo = kernels::kConv1dHalo;

/// Conv1dHaloRows or Conv1dHaloAdd at the end of this rank's tokens.
template <class Op>
Op at_border(const Recorder& recorder, std::int64_t channels) {
  return {.tokens = recorder.tokens(),
          .channels = channels,
          .sequence_tokens = recorder.batch().sequence_tokens,
          .border = recorder.batch().first_token + recorder.tokens(),
          .storage = recorder.storage()};
}

}  // namespace

Tensor SegmentExchange::halo(Recorder& recorder, const ColumnsOf<Tensor>& x) const {
  if (recorder.tokens() < kHalo)
    execution::throw_usage(
        "parallel.context: each rank has {} tokens of a microbatch, a Mamba-2 layer needs {}",
        recorder.tokens(), kHalo);
  std::vector<parallel::Message> messages;
  if (!last()) {
    const Tensor rows = recorder.scratch("halo_rows", {kHalo, x.count});
    recorder.compute("halo_rows", at_border<kernels::Conv1dHaloRows>(recorder, x.count),
                     {.x = x, .seq_idx = recorder.batch().sequence_seq_idx, .rows = rows});
    messages.push_back({group_->rank() + 1, true, {rows, {}}});
  }
  Tensor halo;
  if (!first()) {
    halo = recorder.saved("halo", {kHalo, x.count}, "");
    messages.push_back({group_->rank() - 1, false, {halo, {}}});
  }
  recorder.append(
      group_->exchange(recorder.program(), recorder.full_name("exchange_halo"), messages));
  return halo;
}

void SegmentExchange::halo_gradient(Recorder& recorder, Tensor dhalo,
                                    const ColumnsOf<Tensor>& dx) const {
  std::vector<parallel::Message> messages;
  if (!first()) messages.push_back({group_->rank() - 1, true, {dhalo, {}}});
  Tensor rows;
  if (!last()) {
    rows = recorder.scratch("dhalo_rows", {kHalo, dx.count});
    messages.push_back({group_->rank() + 1, false, {rows, {}}});
  }
  recorder.append(
      group_->exchange(recorder.program(), recorder.full_name("exchange_dhalo"), messages));
  if (last()) return;
  recorder.compute("halo_add", at_border<kernels::Conv1dHaloAdd>(recorder, dx.count),
                   {.gradient = rows, .seq_idx = recorder.batch().sequence_seq_idx, .dx = dx});
}

Tensor SegmentExchange::gather(Recorder& recorder, const char* name, Tensor own) const {
  return SharedRows(group_).gather(recorder, name, own);
}

Tensor SegmentExchange::entering_state(Recorder& recorder, const ScanInputs& inputs) const {
  const execution::Dtype accum = recorder.accumulation();
  const Tensor own =
      recorder.scratch("segment_state", accum, {kernels::ssd_segment_elements(shape_)});
  std::vector<Use> uses = inputs.uses;
  uses.push_back(write(own));
  recorder.compute("segment_state",
                   kernels::ssd_segment_cost(shape_, recorder.tokens(), recorder.storage()),
                   std::move(uses), [of = inputs.of, shape = shape_](execution::Queue& q, Views v) {
                     kernels::ssd_segment_state(q, shape, of(v), v.back());
                   });
  const Tensor all = gather(recorder, "segment_states", own);
  const Tensor state =
      recorder.saved("initial_state", accum, {shape_.heads, shape_.head_dim, shape_.state}, "");
  recorder.compute("enter_state",
                   kernels::ssd_enter_cost(shape_, group_->size(), recorder.storage()),
                   {read(all), read(recorder.batch().sequence_seq_idx), write(state)},
                   [shape = shape_, segments = group_->size(), segment = group_->rank()](
                       execution::Queue& q, Views v) {
                     kernels::ssd_enter_state(q, shape, v[0], v[1], segments, segment, v[2]);
                   });
  return state;
}

Tensor SegmentExchange::entering_adjoint(Recorder& recorder, Tensor dy,
                                         const ScanInputs& inputs) const {
  const execution::Dtype accum = recorder.accumulation();
  const Tensor own =
      recorder.scratch("segment_adjoint", accum, {kernels::ssd_segment_elements(shape_)});
  std::vector<Use> uses = inputs.uses;
  uses.push_back(read(dy));
  uses.push_back(write(own));
  recorder.compute("segment_adjoint",
                   kernels::ssd_segment_cost(shape_, recorder.tokens(), recorder.storage()),
                   std::move(uses), [of = inputs.of, shape = shape_](execution::Queue& q, Views v) {
                     kernels::ssd_segment_adjoint(q, shape, v[v.size() - 2], of(v), v.back());
                   });
  const Tensor all = gather(recorder, "segment_adjoints", own);
  const Tensor adjoint =
      recorder.scratch("dfinal_state", accum, {shape_.heads, shape_.head_dim, shape_.state});
  recorder.compute("enter_adjoint",
                   kernels::ssd_enter_cost(shape_, group_->size(), recorder.storage()),
                   {read(all), read(recorder.batch().sequence_seq_idx), write(adjoint)},
                   [shape = shape_, segments = group_->size(), segment = group_->rank()](
                       execution::Queue& q, Views v) {
                     kernels::ssd_enter_adjoint(q, shape, v[0], v[1], segments, segment, v[2]);
                   });
  return adjoint;
}

}  // namespace stowage::layers
