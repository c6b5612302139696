#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/recording/parameters.hpp"
#include "layers/recording/recorder.hpp"
#include "parallel/groups/ranks.hpp"

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

/// Rows that a product takes at once.
struct RowBlock {
  execution::Range rows;  ///< of all rows; the range that means all: all of them
  bool own = true;        ///< this rank's
  std::string suffix;     ///< of names; none if there is one block
};

/// Rows of all ranks as they come: this rank's own are there at once.
struct AllRows {
  Tensor mine;
  Tensor all;  ///< in the order of ranks
  std::vector<RowBlock> blocks = {{}};

  SomeRows of(const RowBlock& block) const {
    return block.own ? SomeRows(mine) : SomeRows(all, block.rows);
  }
};

/// Exchanges between the rows of the residual stream that a rank has, n / size of them, and all
/// rows, of which ranks compute the products that they share. One rank: no exchange.
///
/// A rank begins with its own rows while those of others come, and ends with its own while what
/// others need of its products goes to them. So what is exchanged lies beside products of the same
/// layer. Of rows of 8 bits the payload travels; all of them have one scale (roundings.hpp).
class SharedRows {
 public:
  SharedRows() = default;
  explicit SharedRows(std::shared_ptr<const parallel::RankGroup> group)
      : group_(std::move(group)) {}

  int size() const { return group_ ? group_->size() : 1; }
  int rank() const { return group_ ? group_->rank() : 0; }
  /// Of a product that nothing of the layer's own exchanges needs beside it.
  WeightsPosition spare_weights() const {
    return size() > 1 ? WeightsPosition::last : WeightsPosition::in_place;
  }
  /// (rows, …) of each rank to (rows * size, …), of which only the other ranks' are written.
  AllRows gather_others(Recorder& recorder, const std::string& name, Tensor mine) const;
  /// The same with this rank's in their place too.
  AllRows gather_each(Recorder& recorder, const std::string& name, Tensor mine) const;
  /// All of them in one exchange, for what takes no block of them.
  Tensor gather(Recorder& recorder, const std::string& name, Tensor mine) const;
  /// The same into a tensor that the caller made; several ranks.
  void gather_to(Recorder& recorder, const std::string& name, Tensor mine, Tensor all) const;
  /// Each rank's summand (rows * size, …) to this rank's rows of the sum, in rank order.
  Tensor reduce(Recorder& recorder, const std::string& name, Tensor summand) const {
    return sum(recorder, send_partials(recorder, name, summand));
  }
  /// Its two halves, for what may compute between them: summands on their way to the ranks that
  /// have their rows, and the sum of those that came here.
  struct Summands {
    std::string name;
    Tensor all;     ///< (rows * size, …) this rank's
    Tensor others;  ///< (rows * (size - 1), …) of this rank's rows, by rank
  };
  Summands send_partials(Recorder& recorder, const std::string& name, Tensor summand) const;
  Tensor sum(Recorder& recorder, const Summands& summands) const;
  /// The same into a tensor that the caller made; several ranks.
  void sum_to(Recorder& recorder, const Summands& summands, Tensor mine) const;
  /// Appends ops that write some rows of a tensor; their names end in the block's suffix.
  using MakeRows = std::function<void(const SomeRows& to, const RowBlock& block)>;
  /// send_partials() of a summand that is made block by block, each sent while the next one is
  /// made.
  Summands send_partials_each(Recorder& recorder, const std::string& name, Tensor summand,
                              const MakeRows& make) const;
  /// reduce() of a summand (tokens, width) that is made so.
  Tensor reduce_each(Recorder& recorder, const std::string& summand, const std::string& name,
                     std::int64_t width, const MakeRows& make) const;

 private:
  /// What one exchange moves: some of the rows of the ranks at these distances.
  struct Step {
    std::vector<int> distances;
    execution::Range some;  ///< of a rank's rows
  };
  std::vector<Step> gather_steps(std::int64_t rows) const;
  std::vector<Step> send_partials_steps(std::int64_t rows) const;
  /// Neighbouring rows of a step: those of ranks at its distances before this one, or behind it.
  std::vector<execution::Range> rows_of(const Step& step, std::int64_t rows, bool behind) const;
  Tensor made_for_all(Recorder& recorder, const std::string& name, Tensor mine) const;
  Summands start(Recorder& recorder, const std::string& name, Tensor summand) const;
  void send_partials_step(Recorder& recorder, const Summands& summands, const Step& step,
                          const std::string& suffix) const;

  std::shared_ptr<const parallel::RankGroup> group_;
};

}  // namespace stowage::layers
