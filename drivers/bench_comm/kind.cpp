#include "drivers/bench_comm/kind.hpp"

#include "execution/error.hpp"

namespace stowage::drivers {

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::all_gather:
      return "all_gather";
    case Kind::all_to_all:
      return "all_to_all";
    case Kind::broadcast:
      return "broadcast";
    case Kind::exchange:
      return "exchange";
  }
  return "?";
}

bool reduces(Kind kind) { return kind == Kind::all_reduce || kind == Kind::reduce_scatter; }

bool can_be_in_place(Kind kind) { return kind != Kind::all_to_all && kind != Kind::exchange; }

double bus_factor(Kind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case Kind::all_reduce:
      return 2 * others;
    case Kind::reduce_scatter:
    case Kind::all_gather:
    case Kind::all_to_all:
      return others;
    case Kind::broadcast:
    case Kind::exchange:
      break;
  }
  return 1;
}

Operands operands(Kind kind, std::size_t bytes, bool in_place, std::byte* from, std::byte* to,
                  int rank, int ranks) {
  STOWAGE_ASSERT(!in_place || can_be_in_place(kind), "{} in place", name(kind));
  const std::int64_t share = static_cast<std::int64_t>(bytes / sizeof(float)) / ranks;
  const std::int64_t all = share * ranks;
  std::byte* const output = in_place ? from : to;
  const std::size_t own =
      in_place ? static_cast<std::size_t>(rank * share) * sizeof(float) : std::size_t{0};
  const std::size_t whole = static_cast<std::size_t>(all) * sizeof(float);
  switch (kind) {
    case Kind::reduce_scatter:
      return {from, all, output + own, share, in_place, whole, share};
    case Kind::all_gather:
      return {from + own, share, output, all, in_place, whole, share};
    case Kind::all_to_all:
      return {from, all, output, all, in_place, whole, share};
    case Kind::all_reduce:
    case Kind::broadcast:
    case Kind::exchange:
      break;
  }
  return {from, all, output, all, in_place, whole, all};
}

}  // namespace stowage::drivers
