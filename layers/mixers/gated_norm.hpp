#pragma once

#include <memory>

#include "kernels/norm/gated_rmsnorm.hpp"
#include "layers/recording/partition.hpp"
#include "layers/recording/roundings.hpp"

namespace stowage::layers {

/// The gated group norm at the end of a Mamba mixer. Where a group lies on several ranks, each sums
/// its own columns, gathers the sums of the others and adds them in rank order, forward and
/// backward: 4 bytes a row from each rank.
class GatedNorm {
 public:
  /// @param weight (inner) @param groups of this rank  @param copies neighbouring tensor ranks that
  /// have parts of the same group; 1: groups are whole
  GatedNorm(std::shared_ptr<const parallel::RankGroup> tensor, Parameter weight,
            std::int64_t groups, int copies, double epsilon);

  const Parameter& weight() const { return weight_; }
  /// y (n, inner); z are the first columns of zxbcdt. @return (n, inner), saved
  /// @param rounding what the product that takes it does with it
  Tensor forward(Recorder& recorder, Tensor y, Tensor zxbcdt, std::string_view module,
                 Rounding rounding) const;
  /// Writes the gradient of z into the first columns of dzxbcdt. @return that of y
  /// @param amax of the gradient of z, or none
  Tensor backward(Recorder& recorder, Tensor dgated, Tensor y, Tensor zxbcdt, Tensor dzxbcdt,
                  Tensor amax) const;

 private:
  struct Saved {
    Tensor squares;  ///< (ranks, n) of all ranks, if they share groups
  };
  bool shared() const { return copies_ > 1; }
  std::int64_t inner() const { return weight_.local(0); }
  /// Room for a sum of each row.
  Tensor sums(Recorder& recorder, const std::string& name) const;
  kernels::GroupShares shares() const {
    return {.parts = ranks_.size(), .first = ranks_.rank() / copies_ * copies_, .count = copies_};
  }

  SharedRows ranks_;
  Parameter weight_;
  std::int64_t groups_;
  int copies_;
  double epsilon_;
};

}  // namespace stowage::layers
