#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drivers/bench_comm/kind.hpp"

namespace stowage::drivers {

/// Sizes of collectives, by nccl-tests' options.
struct SizeOptions {
  std::string least = "1K", most = "1G";  ///< bytes, as "64", "4K" or "1 GiB"
  std::int64_t factor = 4;                ///< from one size to the next
};

/// What the command line says.
struct CommOptions {
  SizeOptions sizes = {};
  std::int64_t samples = 20;
  std::int64_t warm_up = 2;  ///< samples before those, which are not kept
  std::int64_t checks = 1;   ///< of every collective at every size
  std::int64_t calls = 50;   ///< most of one sample
  bool graph = false;
  std::string overlapping = {};  ///< what the GPU does meanwhile: "products", or nothing
  std::vector<Kind> kinds = {};
};

/// What nccl-tests can also be asked for, and this program does in one way only.
struct FixedOptions {
  std::int64_t gpus = 1;  ///< of a rank
  std::string datatype = "float", op = "sum";
};

/// @throws Error (exit 2) that says what is done
void require_usable(const FixedOptions& options);

/// @throws Error (exit 2) for what cannot be, (exit 3) on one rank
void require_usable(const CommOptions& options, int ranks);

/// The kinds named between commas; all for an empty list.
/// @throws Error (exit 2) for a name that no kind has
std::vector<Kind> kinds(const std::string& list);

/// @throws Error (exit 2) for what is no size, less than an element for every rank, a largest below
/// the least, or a factor below 2
std::vector<std::size_t> sizes(const SizeOptions& options, int ranks);

}  // namespace stowage::drivers
