#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "execution/dtype.hpp"
#include "parallel/mpi.hpp"
#include "parallel/ranks.hpp"

namespace stowage::parallel {

/// All-reduce on host memory whose result is the same to the bit every time, on every rank.
///
/// Each element is summed by one rank, in rank order: ((x0 + x1) + x2) + … MPI's own reductions may
/// choose another order for another message size or run. MPI only moves bytes here: chunk r of the
/// elements goes to rank r from all ranks, is combined there, and goes back to all. The order, and
/// so the result, does not depend on how elements are cut into chunks; it does depend on the number
/// of ranks.
///
/// Time on p ranks: every rank sends and receives 2 (p - 1) / p of the bytes, the least possible
/// for an all-reduce (Chan et al., "Collective communication: theory, practice, and experience",
/// section 5). Short messages are gathered by all ranks instead: one exchange, not two.
class OrderedReduce {
 public:
  /// Collective. Allocates all memory that is ever used.
  explicit OrderedReduce(const Communicator& ranks,
                         std::size_t workspace_bytes = std::size_t{4} << 20);

  /// Collective, blocking, in place. Counts of any size.
  /// @param dtype fp32, fp64, int32 or int64; sums are made in it
  /// @throws Error for another dtype, or if MPI fails
  void all_reduce(void* data, std::int64_t count, execution::Dtype dtype, Reduction reduction);

  void gather(void* data, std::size_t share) {
    MPI_Request q; MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, int(share), MPI_BYTE, ranks_.handle(), &q); wait(q);
  }
  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }

 private:
  template <class T>
  void reduce(T* data, std::int64_t count, Reduction reduction);
  template <class T>
  void reduce_short(T* data, std::int64_t count, Reduction reduction);
  template <class T>
  void reduce_piece(T* data, std::int64_t count, Reduction reduction);

  Communicator ranks_;
  std::vector<std::byte> workspace_;
  // Bytes and byte offsets by rank, of what is sent and of what is received.
  std::vector<int> chunk_bytes_, chunk_offsets_, row_bytes_, row_offsets_;
};

}  // namespace stowage::parallel
