#include "run/record/router_load.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stowage::run {

RouterLoad::RouterLoad(std::span<const double> tokens, std::int64_t layers) {
  const std::size_t width = tokens.size() / static_cast<std::size_t>(layers);
  const auto experts = static_cast<double>(width);
  for (std::size_t at = 0; at < tokens.size(); at += width) {
    const std::span<const double> load = tokens.subspan(at, width);
    const double all = std::reduce(load.begin(), load.end());
    double sum = 0;
    for (const double own : load)
      if (own > 0) sum -= own / all * std::log(own / all);
    busiest.push_back(all > 0 ? std::ranges::max(load) * experts / all : 0);
    entropy.push_back(experts > 1 ? sum / std::log(experts) : 1);
    dead.push_back(static_cast<double>(std::ranges::count(load, 0.0)));
  }
}

std::vector<double> RouterLoad::values() const {
  std::vector<double> all = busiest;
  all.insert(all.end(), entropy.begin(), entropy.end());
  all.insert(all.end(), dead.begin(), dead.end());
  return all;
}

}  // namespace stowage::run
