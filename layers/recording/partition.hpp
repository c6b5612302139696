#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/recording/parameters.hpp"
#include "layers/recording/recorder.hpp"
#include "parallel/ranks.hpp"

namespace stowage::layers {

/// Neighbouring weights along a dimension that ranks share equally; `copies` neighbouring ranks
/// have the same ones.
struct Block {
  Block(std::int64_t size, int copies_of_a_share = 1) : extent(size), copies(copies_of_a_share) {}

  std::int64_t extent;
  int copies;
};

/// Which part of a layer's weights a rank has: part `index` of `parts` equal ones.
struct Partition {
  int parts = 1;
  int index = 0;
  std::string group;  ///< of the ranks that share

  Partition() = default;
  explicit Partition(const parallel::RankGroup& sharers)
      : parts(sharers.size()), index(sharers.rank()), group(sharers.name()) {}

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

/// Rows that are exchanged by one op.
struct RowPiece {
  execution::Range all;   ///< of all rows; of the only piece: the range that means all
  execution::Range mine;  ///< of this rank's
  std::string suffix;     ///< of names; none if there is one piece
};

/// Exchanges between the rows of the residual stream that a rank has, n / size of them, and all
/// rows, of which ranks compute the products that they share. One rank: no exchange.
///
/// With several pieces each is exchanged beside the products of its neighbours. A piece is a
/// stretch of all rows, and every rank has its share of each (Batch::row_tokens).
class SharedRows {
 public:
  SharedRows() = default;
  explicit SharedRows(std::shared_ptr<const parallel::RankGroup> group, int pieces = 1)
      : group_(std::move(group)), pieces_(size() > 1 ? pieces : 1) {}

  int size() const { return group_ ? group_->size() : 1; }
  int rank() const { return group_ ? group_->rank() : 0; }
  /// Of a product that nothing of the layer's own exchanges needs beside it.
  WeightsTurn spare_weights() const {
    return size() > 1 ? WeightsTurn::last : WeightsTurn::in_place;
  }
  /// In the order in which they are exchanged. @param rows of all ranks
  std::vector<RowPiece> pieces(std::int64_t rows) const;
  /// (rows, …) of each rank to (rows * size, …), of each piece in the order of ranks.
  Tensor gather(Recorder& recorder, const std::string& name, Tensor mine) const;
  /// The same of a layer's input, which its norm makes piece by piece.
  Tensor gather_early(Recorder& recorder, const std::string& name, Tensor mine) const;
  /// The same into a tensor that the caller made; several ranks.
  void gather_to(Recorder& recorder, const std::string& name, Tensor mine, Tensor all) const;
  /// Each rank's summand (rows * size, …) to this rank's rows of the sum, in rank order.
  Tensor reduce(Recorder& recorder, const std::string& name, Tensor summand) const {
    return sum(recorder, hand_out(recorder, name, summand));
  }
  /// Its two halves, for what may compute between them: summands on their way to the ranks that
  /// have their rows, and the sum of those that came here.
  struct Summands {
    std::string name;
    Tensor all;     ///< (rows * size, …) this rank's
    Tensor others;  ///< (rows * (size - 1), …) of this rank's rows, piece by piece, by rank
  };
  Summands hand_out(Recorder& recorder, const std::string& name, Tensor summand) const;
  Tensor sum(Recorder& recorder, const Summands& summands) const;
  /// The same into a tensor that the caller made; several ranks.
  void sum_to(Recorder& recorder, const Summands& summands, Tensor mine) const;
  /// Appends ops that write some rows of a tensor; their names end in a suffix.
  using MakeRows = std::function<void(Tensor to, execution::Range rows, const std::string& suffix)>;
  /// reduce() of a summand (tokens, width) that is made piece by piece: each is summed while the
  /// next one is made.
  Tensor reduce_each(Recorder& recorder, const std::string& summand, const std::string& name,
                     std::int64_t width, const MakeRows& make) const;

 private:
  execution::Op gather_piece(Recorder& recorder, const std::string& name, Tensor mine, Tensor all,
                             const RowPiece& piece) const;
  Tensor made_for_all(Recorder& recorder, const std::string& name, Tensor mine) const;
  Summands start(Recorder& recorder, const std::string& name, Tensor summand) const;
  void hand_out_piece(Recorder& recorder, const Summands& summands, const RowPiece& piece) const;
  /// Of a piece's rows, those that come from other ranks.
  execution::Range from_others(const RowPiece& piece) const;

  std::shared_ptr<const parallel::RankGroup> group_;
  int pieces_ = 1;
};

}  // namespace stowage::layers
