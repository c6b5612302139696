#include "layers/context/segment_exchange.hpp"

#include <utility>

#include "execution/error.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv1d/halo.hpp"
#include "kernels/ssd/segment.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

using Views = std::span<const execution::View>;
using kernels::Columns;

namespace {

constexpr std::int64_t kHalo = kernels::kConv1dHalo;

}  // namespace

Tensor SegmentExchange::halo(Recorder& recorder, Tensor x, Channels channels) const {
  if (recorder.tokens() < kHalo)
    execution::throw_usage(
        "parallel.context: each rank has {} tokens of a microbatch, a Mamba-2 layer needs {}",
        recorder.tokens(), kHalo);
  std::vector<parallel::Message> messages;
  if (!last()) {
    const Tensor rows = recorder.scratch("halo_rows", {kHalo, channels.count});
    const std::int64_t border = recorder.batch().first_token + recorder.tokens();
    recorder.compute("halo_rows", kernels::conv1d_halo_cost(channels.count, recorder.storage()),
                     {read(x), read(recorder.batch().sequence_seq_idx), write(rows)},
                     [channels, border](execution::Queue& q, Views v) {
                       kernels::conv1d_halo_rows(q, Columns{v[0], channels.first, channels.count},
                                                 v[1], border, v[2]);
                     });
    messages.push_back({group_->rank() + 1, true, {rows, {}}});
  }
  Tensor halo;
  if (!first()) {
    halo = recorder.saved("halo", {kHalo, channels.count}, "");
    messages.push_back({group_->rank() - 1, false, {halo, {}}});
  }
  recorder.append(
      group_->exchange(recorder.program(), recorder.full_name("exchange_halo"), messages));
  return halo;
}

void SegmentExchange::halo_gradient(Recorder& recorder, Tensor dhalo, Tensor dx,
                                    Channels channels) const {
  std::vector<parallel::Message> messages;
  if (!first()) messages.push_back({group_->rank() - 1, true, {dhalo, {}}});
  Tensor rows;
  if (!last()) {
    rows = recorder.scratch("dhalo_rows", {kHalo, channels.count});
    messages.push_back({group_->rank() + 1, false, {rows, {}}});
  }
  recorder.append(
      group_->exchange(recorder.program(), recorder.full_name("exchange_dhalo"), messages));
  if (last()) return;
  const std::int64_t border = recorder.batch().first_token + recorder.tokens();
  recorder.compute("halo_add", kernels::conv1d_halo_cost(channels.count, recorder.storage()),
                   {read(rows), read(recorder.batch().sequence_seq_idx), update(dx)},
                   [channels, border](execution::Queue& q, Views v) {
                     kernels::conv1d_halo_add(q, v[0], v[1], border,
                                              Columns{v[2], channels.first, channels.count});
                   });
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
