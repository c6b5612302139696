#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/gated_delta/segment.hpp"
#include "kernels/ssd/segment.hpp"
#include "layers/recording/recorder.hpp"
#include "parallel/groups/ranks.hpp"

namespace stowage::layers {

/// What ranks that share sequences exchange for a mixer with a convolution and a scan: each has a
/// segment of as many tokens, computes what its own tokens leave behind, and takes what enters its
/// segment from the others. A document that ends inside cuts the chain. One rank: no exchange.
/// @tparam Scan the operators of its segments: kernels::SsdScan, kernels::GatedDeltaScan
template <class Scan>
class SegmentExchange {
 public:
  using Shape = typename Scan::Shape;
  using Inputs = typename Scan::template Inputs<Tensor>;

  /// @param layer in messages: "Mamba-2"
  SegmentExchange(std::shared_ptr<const parallel::RankGroup> group, const Shape& shape,
                  std::string_view layer)
      : group_(std::move(group)), shape_(shape), layer_(layer) {}

  bool shared() const { return group_->size() > 1; }

  /// (3, C) rows of x before this rank's tokens, kept for backward; none on the first rank.
  /// @throws Error (exit 2) if a rank has fewer tokens than that
  Tensor halo(Recorder& recorder, const kernels::ColumnsOf<Tensor>& x) const;
  /// Hands their gradient back, and adds that of this rank's last rows to dx.
  /// @param dhalo as halo() gave it, none on the first rank
  void halo_gradient(Recorder& recorder, Tensor dhalo, const kernels::ColumnsOf<Tensor>& dx) const;

  /// (H, P, N) state before this rank's tokens, kept for backward.
  Tensor entering_state(Recorder& recorder, const Inputs& inputs) const;
  /// (H, P, N) gradient of the state after them. @param dy (tokens, H P) of the scan's output
  Tensor entering_adjoint(Recorder& recorder, Tensor dy, const Inputs& inputs) const;

 private:
  bool first() const { return group_->rank() == 0; }
  bool last() const { return group_->rank() + 1 == group_->size(); }
  /// (ranks * elements) what all segments leave, from this rank's.
  Tensor gather(Recorder& recorder, const char* name, Tensor own) const;

  /// What this rank's segment leaves: a state, or an adjoint from dy.
  template <bool kAdjoint>
  Tensor own_segment(Recorder& recorder, const char* name, const Inputs& inputs, Tensor dy) const;
  /// What enters this rank's segment, from what all leave.
  template <bool kAdjoint>
  void enter(Recorder& recorder, const char* name, Tensor all, Tensor state) const;

  std::shared_ptr<const parallel::RankGroup> group_;
  Shape shape_;
  std::string_view layer_;
};

}  // namespace stowage::layers
