#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "execution/error.hpp"

namespace CLI {
class App;
}

namespace stowage::run {

/// The options that drivers without a deck share.
struct MeasureOptions {
  std::string output;       ///< the result set; empty: none is written
  std::string json;         ///< JSON lines; empty: none are written
  std::int64_t device = 0;  ///< index of the GPU
  std::int64_t samples = 50;
  std::int64_t seed = 1;  ///< of the random operands
};

/// Body of such a driver's main(): starts MPI as all drivers do, parses, and runs on its one rank.
/// @param add_options adds the driver's own  @param run is called unless --help or --version is
/// given
int measure_main(int argc, char** argv, const std::string& name, const std::string& summary,
                 MeasureOptions& options, const std::function<void(CLI::App&)>& add_options,
                 const std::function<execution::Exit()>& run);

}  // namespace stowage::run
