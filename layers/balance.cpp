#include "layers/balance.hpp"

#include <algorithm>
#include <compare>
#include <limits>

#include "execution/error.hpp"

namespace stowage::layers {
namespace {

using execution::Op;
using execution::Program;
using execution::Scope;

/// The layer that an op belongs to, or -1.
int layer_of(const Program& program, const Op& op) {
  for (int at = op.scope; at >= 0; at = program.scopes()[static_cast<std::size_t>(at)].parent)
    if (const Scope& scope = program.scopes()[static_cast<std::size_t>(at)]; scope.kind == "layer")
      return scope.layer;
  return -1;
}

/// How good some stages are: less is better.
struct Load {
  double slowest_s = 0;
  double squares = 0;  ///< sum of the squares of all times

  Load operator+(double stage_s) const {
    return {std::max(slowest_s, stage_s), squares + stage_s * stage_s};
  }
  friend auto operator<=>(const Load&, const Load&) = default;
};

constexpr double kNone = std::numeric_limits<double>::infinity();

/// What the last of some stages begins with, and how good they all are.
struct Best {
  Load load{kNone, kNone};
  int begin = 0;
};

}  // namespace

PartTimes predict_parts(const Program& program, int layers, const offload::Rates& rates) {
  PartTimes times{0, std::vector<double>(static_cast<std::size_t>(layers), 0), 0};
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    if (op.lane != execution::Lane::compute || op.only_rerun) continue;
    const double time_s = rates.time_s(program, static_cast<int>(i));
    if (const int layer = layer_of(program, op); layer >= 0)
      times.layers_s[static_cast<std::size_t>(layer)] += time_s;
    else if (op.name.starts_with("mb0/embedding/"))
      times.embedding_s += time_s;
    else if (op.name.starts_with("mb0/head/") || op.name.starts_with("mb0/loss/"))
      times.head_s += time_s;
  }
  return times;
}

std::string balanced_cuts(const std::string& pattern, int stages, const PartTimes& times) {
  const auto layers = static_cast<int>(pattern.size());
  if (layers < stages)
    execution::throw_usage(
        "model.pattern = \"{}\": {} layers are too few for {} stages (parallel.pipeline)", pattern,
        layers, stages);
  std::vector<double> until_s{0};
  for (const double layer_s : times.layers_s) until_s.push_back(until_s.back() + layer_s);
  const auto stage_s = [&](int begin, int end) {
    return until_s[static_cast<std::size_t>(end)] - until_s[static_cast<std::size_t>(begin)] +
           (begin == 0 ? times.embedding_s : 0) + (end == layers ? times.head_s : 0);
  };
  // best[s][end]: layers [0, end) in s + 1 stages.
  std::vector<std::vector<Best>> best(static_cast<std::size_t>(stages),
                                      std::vector<Best>(static_cast<std::size_t>(layers) + 1));
  for (int s = 0; s < stages; ++s)
    for (int end = s + 1; end <= layers; ++end) {
      Best& at = best[static_cast<std::size_t>(s)][static_cast<std::size_t>(end)];
      for (int begin = s; begin < (s == 0 ? 1 : end); ++begin) {
        const Load before =
            s == 0 ? Load{}
                   : best[static_cast<std::size_t>(s) - 1][static_cast<std::size_t>(begin)].load;
        if (const Load load = before + stage_s(begin, end); load < at.load) at = {load, begin};
      }
    }
  std::string cut = pattern;
  int end = layers;
  for (int s = stages; s-- > 1;) {
    end = best[static_cast<std::size_t>(s)][static_cast<std::size_t>(end)].begin;
    cut.insert(static_cast<std::size_t>(end), 1, '|');
  }
  return cut;
}

}  // namespace stowage::layers
