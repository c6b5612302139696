#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "execution/dtype.hpp"
#include "parallel/groups/transport.hpp"

namespace stowage::parallel {

struct SumTree;

/// How ranks combine an element. A NaN on any rank gives NaN.
enum class Reduction : unsigned char { sum, min, max };

/// "sum", "min" or "max".
std::string_view name(Reduction reduction);

/// Room that all_reduce and reduce_scatter need for `count` elements, or fewer, on so many ranks.
std::size_t reduce_workspace_bytes(std::int64_t count, execution::Dtype dtype,
                                   execution::Dtype wire, int ranks);
/// Room that add_by_tree needs for as many elements.
std::size_t tree_workspace_bytes(std::int64_t count, execution::Dtype dtype, const SumTree& tree);

/// The collectives of one group, the same on every backend: a transport moves bytes, and sums are
/// made here, in rank order: ((x0 + x1) + x2) + … So the order, and the result, depend neither on
/// the topology nor on how elements are cut into shares, and the sums of reduce_scatter are those
/// of all_reduce. MPI's and NCCL's own reductions choose their order by size and topology.
///
/// Every rank sends and receives 2 (p - 1) / p of the bytes for an all-reduce, the least possible
/// (Chan et al., "Collective communication: theory, practice, and experience", section 5). Short
/// ones are sent whole to all ranks instead: one exchange, not two.
class Collectives {
 public:
  explicit Collectives(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

  Transport& transport() const { return *transport_; }

  /// Combines `count` elements in place, fp64, fp32, bf16 (sums in fp32), int32 or int64.
  /// @param index from Transport::announce  @param wire dtype, or bf16 for fp32 sums: each rank's
  /// part is rounded once, its own too  @param workspace of reduce_workspace_bytes
  void all_reduce(execution::Queue& queue, int index, void* data, std::int64_t count,
                  execution::Dtype dtype, Reduction reduction, execution::Dtype wire,
                  void* workspace) const;
  /// Sums `count` elements, size() equal shares: this rank's own then holds the sum over all ranks,
  /// the others are unchanged.
  void reduce_scatter(execution::Queue& queue, int index, void* data, std::int64_t count,
                      execution::Dtype dtype, execution::Dtype wire, void* workspace) const;
  /// Sums `count` elements of all ranks' nodes by the tree, fp64 or fp32: as reduce_scatter, or all
  /// of them to all ranks. @param own this rank's nodes, in order; the last one gets the sums
  /// @param workspace of tree_workspace_bytes
  void add_by_tree(execution::Queue& queue, int index, std::span<void* const> own,
                   std::int64_t count, execution::Dtype dtype, const SumTree& tree, bool scatter,
                   void* workspace) const;
  /// data: size() equal shares, of which this rank's own is given.
  void all_gather(execution::Queue& queue, int index, void* data, std::size_t share_bytes) const;
  /// The same with this rank's share given elsewhere.
  void all_gather(execution::Queue& queue, int index, const void* share, void* data,
                  std::size_t share_bytes) const;
  /// Part r of `from` goes to rank r and comes from it into part r of `to`.
  void all_to_all(execution::Queue& queue, int index, void* from, void* to,
                  std::size_t part_bytes) const;
  void broadcast(execution::Queue& queue, int index, void* data, std::size_t bytes, int root) const;
  void exchange(execution::Queue& queue, int index, std::span<const Transfer> transfers) const;

 private:
  struct Buffer;

  void sum_shares(execution::Queue& queue, const Buffer& buffer, Reduction reduction) const;
  void reduce_all(execution::Queue& queue, const Buffer& buffer, Reduction reduction) const;
  void gather_shares(execution::Queue& queue, const Buffer& buffer) const;
  void gather_others(execution::Queue& queue, int index, const void* own, void* data,
                     std::size_t share_bytes) const;

  std::shared_ptr<Transport> transport_;
};

/// sums[i] = the elements i of all `ranks` in rank order, of this rank's `own` and of the others'
/// rows of `count` elements, as a reduction over ranks adds them. No exchange: on any queue.
void sum_rows(execution::Queue& queue, const void* others, const void* own, void* sums,
              std::int64_t count, execution::Dtype dtype, int rank, int ranks);

}  // namespace stowage::parallel
