#include "layers/context/segment_exchange.hpp"

#include <utility>

#include "execution/error.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv1d/halo.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

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

template <class Scan>
Tensor SegmentExchange<Scan>::halo(Recorder& recorder, const ColumnsOf<Tensor>& x) const {
  if (recorder.tokens() < kHalo)
    execution::throw_usage(
        "parallel.context: each rank has {} tokens of a microbatch, a {} layer needs {}",
        recorder.tokens(), layer_, kHalo);
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

template <class Scan>
void SegmentExchange<Scan>::halo_gradient(Recorder& recorder, Tensor dhalo,
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

template <class Scan>
Tensor SegmentExchange<Scan>::gather(Recorder& recorder, const char* name, Tensor own) const {
  return SharedRows(group_).gather(recorder, name, own);
}

template <class Scan>
template <bool kAdjoint>
Tensor SegmentExchange<Scan>::own_segment(Recorder& recorder, const char* name,
                                          const Inputs& inputs, Tensor dy) const {
  using Segment = typename Scan::template Segment<kAdjoint>;
  const Segment segment{
      .shape = shape_, .tokens = recorder.tokens(), .storage = recorder.storage()};
  const Tensor own =
      recorder.scratch(name, recorder.accumulation(), {Scan::segment_elements(shape_)});
  typename Segment::template Operands<Tensor> operands;
  operands.inputs = inputs;
  operands.dy = dy;
  operands.to = own;
  if constexpr (requires { operands.workspace; })
    operands.workspace =
        recorder.workspace(std::string(name) + "_workspace", segment.workspace_bytes());
  recorder.compute(name, segment, operands);
  return own;
}

template <class Scan>
template <bool kAdjoint>
void SegmentExchange<Scan>::enter(Recorder& recorder, const char* name, Tensor all,
                                  Tensor state) const {
  using Enter = typename Scan::template Enter<kAdjoint>;
  const Enter enter{.shape = shape_,
                    .tokens = recorder.batch().sequence_tokens,
                    .segments = group_->size(),
                    .segment = group_->rank(),
                    .storage = recorder.storage()};
  typename Enter::template Operands<Tensor> operands;
  operands.all = all;
  operands.seq_idx = recorder.batch().sequence_seq_idx;
  operands.state = state;
  if constexpr (requires { operands.workspace; })
    operands.workspace =
        recorder.workspace(std::string(name) + "_workspace", enter.workspace_bytes());
  recorder.compute(name, enter, operands);
}

template <class Scan>
Tensor SegmentExchange<Scan>::entering_state(Recorder& recorder, const Inputs& inputs) const {
  const Tensor own = own_segment<false>(recorder, "segment_state", inputs, {});
  const Tensor all = gather(recorder, "segment_states", own);
  const Tensor state =
      recorder.saved("initial_state", recorder.accumulation(), shape_.states(), "");
  enter<false>(recorder, "enter_state", all, state);
  return state;
}

template <class Scan>
Tensor SegmentExchange<Scan>::entering_adjoint(Recorder& recorder, Tensor dy,
                                               const Inputs& inputs) const {
  const Tensor own = own_segment<true>(recorder, "segment_adjoint", inputs, dy);
  const Tensor all = gather(recorder, "segment_adjoints", own);
  const Tensor adjoint = recorder.scratch("dfinal_state", recorder.accumulation(), shape_.states());
  enter<true>(recorder, "enter_adjoint", all, adjoint);
  return adjoint;
}

template class SegmentExchange<kernels::SsdScan>;
template class SegmentExchange<kernels::GatedDeltaScan>;

}  // namespace stowage::layers
