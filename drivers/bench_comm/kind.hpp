#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stowage::drivers {

/// What all ranks of a group do together. Broadcast has root kRoot; in exchange every rank sends to
/// the next one and receives from the one before.
enum class Kind : unsigned char {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  exchange
};

inline constexpr Kind kKinds[] = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather,
                                  Kind::all_to_all, Kind::broadcast,      Kind::exchange};
inline constexpr int kRoot = 0;

/// "all_reduce".
std::string_view name(Kind kind);
/// Whether ranks' elements are summed.
bool reduces(Kind kind);
/// Whether the input may lie where the output does.
bool can_be_in_place(Kind kind);
/// Bytes that a rank sends at least, by bytes of the collective: busbw / algbw of nccl-tests.
double bus_factor(Kind kind, int ranks);

/// Where one rank's fp32 elements of one collective lie. In place, one range holds the other.
struct Operands {
  std::byte* input;
  std::int64_t inputs;  ///< elements
  std::byte* output;
  std::int64_t outputs;
  bool in_place;
  std::size_t bytes;   ///< of the collective, as nccl-tests counts: of the longer range
  std::int64_t count;  ///< NCCL's argument: elements of a share where ranks have shares
};

/// @param bytes rounded down to whole elements in every rank's share
/// @param from, to ranges of `bytes`; in place all lies in `from`
Operands operands(Kind kind, std::size_t bytes, bool in_place, std::byte* from, std::byte* to,
                  int rank, int ranks);

}  // namespace stowage::drivers
