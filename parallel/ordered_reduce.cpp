#include "parallel/ordered_reduce.hpp"

#include <algorithm>
#include <cstring>

namespace stowage::parallel {
namespace {

using execution::Dtype;

/// Messages up to this size are latency-bound: fewer exchanges beat fewer bytes.
constexpr std::size_t kShortBytes = 4096;

/// into[i] = combine(into[i], from[i]); written so that a NaN in either stays.
template <class T>
void fold(T* into, const T* from, std::int64_t count, Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      for (std::int64_t i = 0; i < count; ++i) into[i] += from[i];
      break;
    case Reduction::min:
      for (std::int64_t i = 0; i < count; ++i) {
        const T a = into[i], b = from[i];
        into[i] = a < b || a != a ? a : b;
      }
      break;
    case Reduction::max:
      for (std::int64_t i = 0; i < count; ++i) {
        const T a = into[i], b = from[i];
        into[i] = a > b || a != a ? a : b;
      }
      break;
  }
}

}  // namespace

std::string_view name(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::min:
      return "min";
    case Reduction::max:
      return "max";
  }
  return "?";
}

OrderedReduce::OrderedReduce(const Communicator& ranks, std::size_t workspace_bytes)
    : ranks_(ranks.duplicate()),
      workspace_(ranks.size() == 1
                     ? 0
                     : std::max(workspace_bytes, kShortBytes * static_cast<std::size_t>(size()))),
      chunk_bytes_(static_cast<std::size_t>(size())),
      chunk_offsets_(chunk_bytes_),
      row_bytes_(chunk_bytes_),
      row_offsets_(chunk_bytes_) {
  (void)narrow<int>(workspace_.size());  // MPI's counts and offsets stay within it
}

void OrderedReduce::all_reduce(void* data, std::int64_t count, Dtype dtype, Reduction reduction) {
  if (size() == 1) return;
  switch (dtype) {
    case Dtype::fp32:
      return reduce(static_cast<float*>(data), count, reduction);
    case Dtype::fp64:
      return reduce(static_cast<double*>(data), count, reduction);
    case Dtype::int32:
      return reduce(static_cast<std::int32_t*>(data), count, reduction);
    case Dtype::int64:
      return reduce(static_cast<std::int64_t*>(data), count, reduction);
    default:
      throw execution::Error(execution::Exit::runtime,
                             fmt::format("ranks cannot combine {} elements", name(dtype)));
  }
}

template <class T>
void OrderedReduce::reduce(T* data, std::int64_t count, Reduction reduction) {
  if (static_cast<std::size_t>(count) * sizeof(T) <= kShortBytes)
    return reduce_short(data, count, reduction);
  const auto piece = static_cast<std::int64_t>(workspace_.size() / sizeof(T)) / size() * size();
  for (std::int64_t done = 0; done < count; done += piece)
    reduce_piece(data + done, std::min(piece, count - done), reduction);
}

template <class T>
void OrderedReduce::reduce_short(T* data, std::int64_t count, Reduction reduction) {
  const int bytes = narrow<int>(count * static_cast<std::int64_t>(sizeof(T)));
  T* rows = reinterpret_cast<T*>(workspace_.data());
  MPI_Request request = MPI_REQUEST_NULL;
  STOWAGE_MPI(
      MPI_Iallgather(data, bytes, MPI_BYTE, rows, bytes, MPI_BYTE, ranks_.handle(), &request));
  wait(request);
  std::memcpy(data, rows, static_cast<std::size_t>(bytes));
  for (int r = 1; r < size(); ++r) fold(data, rows + r * count, count, reduction);
}

template <class T>
void OrderedReduce::reduce_piece(T* data, std::int64_t count, Reduction reduction) {
  const std::int64_t chunk = (count + size() - 1) / size();
  const auto begin = [&](std::int64_t r) { return std::min(r * chunk, count); };
  const auto bytes = [](std::int64_t elements) {
    return narrow<int>(elements * static_cast<std::int64_t>(sizeof(T)));
  };
  const std::int64_t mine = begin(rank() + 1) - begin(rank());
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    chunk_bytes_[i] = bytes(begin(r + 1) - begin(r));
    chunk_offsets_[i] = bytes(begin(r));
    row_bytes_[i] = bytes(mine);
    row_offsets_[i] = bytes(r * mine);
  }
  T* rows = reinterpret_cast<T*>(workspace_.data());
  MPI_Request request = MPI_REQUEST_NULL;
  STOWAGE_MPI(MPI_Ialltoallv(data, chunk_bytes_.data(), chunk_offsets_.data(), MPI_BYTE, rows,
                             row_bytes_.data(), row_offsets_.data(), MPI_BYTE, ranks_.handle(),
                             &request));
  wait(request);
  T* sum = data + begin(rank());
  std::copy_n(rows, mine, sum);
  for (int r = 1; r < size(); ++r) fold(sum, rows + r * mine, mine, reduction);
  STOWAGE_MPI(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, chunk_bytes_.data(),
                              chunk_offsets_.data(), MPI_BYTE, ranks_.handle(), &request));
  wait(request);
}

}  // namespace stowage::parallel
