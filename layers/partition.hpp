#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/parameters.hpp"
#include "layers/recorder.hpp"
#include "parallel/ranks.hpp"

namespace stowage::layers {

/// Which part of a layer's weights a rank has: part `index` of `parts` equal ones.
struct Partition {
  int parts = 1;
  int index = 0;

  Partition() = default;
  explicit Partition(const parallel::RankGroup& group) : parts(group.size()), index(group.rank()) {}

  /// This rank's share of `extent` things.
  /// @throws Error (exit 2) if they do not divide: `key` is the deck's name of the extent
  std::int64_t share(std::int64_t extent, const char* key) const;
  int share(int extent, const char* key) const;
  /// The part that a rank has of a dimension that consists of blocks, one behind the other, of
  /// which each is cut into equal parts; no cut if there is one part.
  std::vector<Cut> cut(int dimension, const std::vector<std::int64_t>& blocks) const;
  /// Reduction group of a parameter that all parts have whole, whose gradients are summands: each
  /// comes from some of the rows.
  std::string replicated() const { return parts > 1 ? "replicated" : "dense"; }
};

/// Exchanges between the rows of the residual stream that a rank has, n / size of them, and all
/// rows, of which ranks compute the products that they share. One rank: no exchange.
class SharedRows {
 public:
  SharedRows() = default;
  explicit SharedRows(std::shared_ptr<const parallel::RankGroup> group)
      : group_(std::move(group)) {}

  int size() const { return group_ ? group_->size() : 1; }
  int rank() const { return group_ ? group_->rank() : 0; }
  /// (rows, …) of each rank to (rows * size, …), in the order of ranks.
  Tensor gather(Recorder& recorder, const std::string& name, Tensor mine) const;
  /// Each rank's summand (rows * size, …) to this rank's rows of the sum.
  Tensor reduce(Recorder& recorder, const std::string& name, Tensor summand) const;
  /// The same into a tensor that the caller made; several ranks.
  void reduce_to(Recorder& recorder, const std::string& name, Tensor summand, Tensor mine) const;

 private:
  std::shared_ptr<const parallel::RankGroup> group_;
};

}  // namespace stowage::layers
