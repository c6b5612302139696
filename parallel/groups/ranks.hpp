#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "execution/program.hpp"
#include "parallel/groups/collectives.hpp"
#include "parallel/groups/grid.hpp"

/// What a recorder of a step knows of the other ranks: no MPI, no NCCL, no address.

namespace stowage::parallel {

/// Elements of the only buffer of a tensor: what an exchange reads or writes, contiguous in memory.
/// A rank's part of a gather may be a payload with its scale: the payload alone travels, since all
/// ranks have the scale.
struct Piece {
  execution::Tensor tensor;
  execution::Range range;
};

/// One message of a matched group of sends and receives.
struct Message {
  int peer = 0;  ///< rank in the group
  bool sends = false;
  Piece piece;
  /// What both ends call it: a send that meets the receive of something else is a fault even if
  /// their sizes are equal.
  std::string what = {};
};

/// One group of ranks, and the maker of its communication ops.
///
/// Every maker returns an op of the comm lane with uses, cost and Communication; all ranks of the
/// group record the same ones in the same order. A piece of a bucket is used part by part
/// (Program::uses). Sums are made in rank order, in fp32 for bf16 and in the type itself for wider
/// ones, so they are the same bits on any backend and topology, and those of reduce_scatter are
/// those of all_reduce.
class RankGroup {
 public:
  /// One rank alone.
  RankGroup() = default;
  /// @param members ranks of the job in the group's order  @param rank of this one among them
  /// @param collectives what runs the ops; none: they can be planned and proved, not run
  RankGroup(std::string name, std::vector<int> members, int rank,
            std::shared_ptr<const Collectives> collectives = {});

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }
  /// What runs the ops; null if they are only planned.
  const Collectives* collectives() const { return collectives_.get(); }
  /// The equal part of `range` that belongs to a rank. @throws Error if it does not divide
  execution::Range share(execution::Range range, int rank) const;

  /// Room for a reduction of a piece, or of any piece of fewer elements. Ops of one group follow
  /// each other, so they can share one; what compute uses in between would wait for them.
  execution::Tensor workspace(execution::Program& program, std::string name, std::int64_t elements,
                              execution::Dtype dtype, execution::Dtype wire) const;
  /// Combines a piece over the ranks, in place. @param wire dtype of what travels: that of the
  /// piece, or bf16 for fp32 sums, which rounds each rank's part once  @param workspace none: a
  /// tensor of its own
  execution::Op all_reduce(execution::Program& program, std::string name, Piece piece,
                           Reduction reduction, execution::Dtype wire,
                           execution::Tensor workspace = {}) const;
  execution::Op all_reduce(execution::Program& program, std::string name, Piece piece,
                           Reduction reduction) const;
  /// Sums a piece of size() equal shares: this rank's own holds the sum over all ranks, the others
  /// are unchanged.
  execution::Op reduce_scatter(execution::Program& program, std::string name, Piece piece,
                               execution::Dtype wire, execution::Tensor workspace = {}) const;
  /// The sum of `piece`, a rank's last node, and of the nodes before it, which lie in `kept` at the
  /// same elements, over the ranks by a tree: as reduce_scatter, or as all_reduce.
  execution::Op add_by_tree(execution::Program& program, std::string name, Piece piece,
                            const std::vector<execution::Tensor>& kept, const SumTree& tree,
                            bool scatter, execution::Tensor workspace = {}) const;
  /// First half of a split reduce-scatter, which leaves `piece` as it is: sends the partial sums of
  /// each peer's share to that peer, by copies only, which over peer memory take no multiprocessor.
  /// Of equal part r of `piece`, the elements `some` go to rank r, for the ranks that come at these
  /// distances behind this one. `others` has a part for every other rank; to the same place of it
  /// come those of the ranks at these distances before this one.
  execution::Op send_partials(execution::Program& program, std::string name, Piece piece,
                              Piece others, const std::vector<int>& distances,
                              execution::Range some) const;
  /// Second half, on the compute lane: adds the parts and this rank's own into `sums`, in the order
  /// of ranks. It stands where compute needs the sums.
  execution::Op reduce_partials(execution::Program& program, std::string name, Piece piece,
                                Piece others, Piece sums) const;
  /// Fills the equal parts of `piece` that belong to the ranks at these distances before this one
  /// from their `mine`: copies alone too.
  execution::Op gather_ring(execution::Program& program, std::string name, Piece mine, Piece piece,
                            const std::vector<int>& distances) const;
  /// Fills the other ranks' equal shares of a piece from them; its own is read.
  execution::Op all_gather(execution::Program& program, std::string name, Piece piece) const;
  /// The same with this rank's share given elsewhere: all of `piece` is written.
  execution::Op all_gather_from(execution::Program& program, std::string name, Piece share,
                                Piece piece) const;
  /// Equal part r of `from` goes to rank r, and comes from rank r into part r of `to`.
  execution::Op all_to_all(execution::Program& program, std::string name, Piece from,
                           Piece to) const;
  /// Every rank gets what rank `root` of the group has.
  execution::Op broadcast(execution::Program& program, std::string name, Piece piece,
                          int root) const;
  /// Sends and receives that all start together, so that no order of ranks can block. A rank
  /// without any records it too, unless all of its group are.
  execution::Op exchange(execution::Program& program, std::string name,
                         const std::vector<Message>& messages) const;

 private:
  /// An op without uses and launch.
  execution::Op begin(const execution::Program& program, std::string name, const char* kind,
                      const Piece& piece, double share, execution::Dtype wire) const;
  /// The rank at a distance behind this one, or before it.
  int behind(int distance) const { return (rank_ + distance) % size(); }
  int before(int distance) const { return (rank_ + size() - distance) % size(); }
  execution::UseIndex use_workspace(execution::Op& op, execution::Program& program,
                                    const Piece& piece, execution::Dtype wire,
                                    execution::Tensor workspace) const;
  /// What runs an op: the collectives, and the index that it was announced by.
  struct Call {
    std::shared_ptr<const Collectives> collectives;
    int index = 0;

    const Collectives* operator->() const;
  };
  Call call(const std::string& name) const;
  /// Transfers whose places are the op's uses, in order.
  static execution::Launch bound(Call call, std::vector<Transfer> transfers);

  std::string name_ = "alone";
  std::vector<int> members_ = {0};
  int rank_ = 0;
  std::shared_ptr<const Collectives> collectives_;
};

/// This rank's place in the process grid, and its groups. Layers receive it as a plain struct.
struct Ranks {
  GridShape shape;
  PerAxis coordinates;
  /// By Group. Groups of the same members are one object with one queue and one communicator, by
  /// the first of their names.
  std::array<std::shared_ptr<const RankGroup>, kGroups> groups;

  const RankGroup& group(Group which) const { return *groups[static_cast<std::size_t>(which)]; }
  const std::shared_ptr<const RankGroup>& shared_group(Group which) const {
    return groups[static_cast<std::size_t>(which)];
  }
  int size() const { return shape.ranks(); }
  /// The sequences of a step that this rank has.
  SequencePart sequences() const { return sequence_part(shape, rank_at(shape, coordinates)); }
  /// True if every rank holds all of the model.
  bool whole_model() const { return group(Group::model).size() == 1; }
};

/// Makes what runs the ops of a group; null: they are only planned.
using MakeCollectives = std::function<std::shared_ptr<const Collectives>(
    const std::string& group, const std::vector<int>& members)>;

/// The groups of a rank, by `make` where there is more than one rank in them.
Ranks make_ranks(const GridShape& shape, int rank, const MakeCollectives& make);

/// Collective. Tells the transports of all groups where the tensors of all their ops lie.
void attach(const Ranks& ranks, std::span<std::byte> arena);

/// Ranks that can be planned for, not run: what a dry run and stowage_plan use.
Ranks planned_ranks(const GridShape& shape, int rank);

}  // namespace stowage::parallel
