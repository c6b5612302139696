#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/parameters.hpp"
#include "layers/recorder.hpp"
#include "parallel/ranks.hpp"

namespace stowage::layers {

/// Neighbouring weights along a dimension that ranks share equally; `copies` neighbouring ranks have
/// the same ones.
struct Block {
  Block(std::int64_t size, int copies_of_a_share = 1) : extent(size), copies(copies_of_a_share) {}

  std::int64_t extent;
  int copies;
};

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
  /// Ranks that have the same of `extent` things, which may be fewer than ranks.
  /// @throws Error (exit 2) if neither number divides the other
  int copies(std::int64_t extent, const char* key) const;
  /// This rank's share of what may be fewer things than ranks: one of them at least.
  /// @throws Error as above
  int share_or_copy(int extent, const char* key) const;
  /// The part that a rank has of a dimension that consists of blocks, one behind the other; no cut
  /// if there is one part.
  std::vector<Cut> cut(int dimension, const std::vector<Block>& blocks) const;
  /// Rows of a part, of which each is on so many ranks.
  Repeat repeat(execution::Range rows, int copies) const { return {rows, copies, index % copies}; }
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
  /// The same into a tensor that the caller made; several ranks.
  void gather_to(Recorder& recorder, const std::string& name, Tensor mine, Tensor all) const;
  /// Each rank's summand (rows * size, …) to this rank's rows of the sum.
  Tensor reduce(Recorder& recorder, const std::string& name, Tensor summand) const;
  /// The same into a tensor that the caller made; several ranks.
  void reduce_to(Recorder& recorder, const std::string& name, Tensor summand, Tensor mine) const;

 private:
  std::shared_ptr<const parallel::RankGroup> group_;
};

}  // namespace stowage::layers
