#include "layers/step/whole_matrices.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "execution/error.hpp"
#include "layers/state/state.hpp"
#include "layers/step/parameter_factors.hpp"

namespace stowage::layers {
namespace {

using execution::Range;

/// Rows of the whole parameter, those of all experts, that a rank has, one range behind the other.
std::vector<Range> row_ranges(const Parameter& parameter) {
  const std::int64_t each = parameter.shape.size() == 3 ? parameter.shape[1] : 1;
  std::vector<Range> ranges;
  for (const Cut& cut : parameter.cuts)
    if (cut.dimension == 0)
      for (const Range& range : cut.ranges)
        ranges.push_back({range.begin * each, range.end * each});
  if (ranges.empty()) ranges.push_back({0, parameter.shape[0] * each});
  return ranges;
}

Range column_range(const Parameter& parameter) {
  const int last = static_cast<int>(parameter.shape.size()) - 1;
  Range columns{0, parameter.shape.back()};
  for (const Cut& cut : parameter.cuts) {
    STOWAGE_ASSERT(cut.dimension == 0 || (cut.dimension == last && cut.ranges.size() == 1),
                   "{} is cut along dimension {}", parameter.name, cut.dimension);
    if (cut.dimension == last) columns = cut.ranges.front();
  }
  return columns;
}

/// Parameters of the other ranks of a stage, which differ by their place among those that share
/// layers.
class StageParameters {
 public:
  explicit StageParameters(const Model& model) : model_(model) {}

  const std::map<std::string, Parameter>& of(const parallel::Ranks& ranks) {
    const auto [found, added] = all_.try_emplace(
        {ranks.coordinates[parallel::Axis::tensor], ranks.coordinates[parallel::Axis::expert]});
    if (added)
      for (Parameter& p : Model(model_.config(), model_.precision(), 1, ranks).parameters()) {
        std::string name = p.name;
        found->second.emplace(std::move(name), std::move(p));
      }
    return found->second;
  }

 private:
  const Model& model_;
  std::map<std::pair<int, int>, std::map<std::string, Parameter>> all_;
};

}  // namespace

std::vector<std::int64_t> matrix_rows(const Parameter& parameter, MuonConfig::Split split) {
  const std::int64_t all = parameter.shape[parameter.shape.size() - 2];  // of an expert
  std::vector<std::int64_t> rows;
  for (const Projection& projection : parameter.projections) {
    const bool heads = split == MuonConfig::Split::heads && projection.head_rows > 0;
    const std::int64_t each = heads ? projection.head_rows : projection.rows;
    for (std::int64_t done = 0; done < projection.rows; done += each) rows.push_back(each);
  }
  STOWAGE_ASSERT(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == all,
                 "{} has {} rows, its projections others", parameter.name, all);
  return split == MuonConfig::Split::none ? std::vector{all} : rows;
}

WholeMatrices::WholeMatrices(const Model& model, const execution::PersistentLayout& layout,
                             const Sharing& sharing, const Optimizer& rule,
                             const OptimizerConfig& config, std::int64_t wave_elements) {
  std::int64_t filled = wave_elements;
  std::vector<std::size_t> ends;  // of each parameter's matrices
  std::vector<Parameter> parameters;
  for (Parameter& parameter : model.parameters()) {
    if (parameter.projections.empty()) continue;
    if (factor_of(parameter.name, config.lr_factors, 1) == 0) continue;  // frozen
    if (filled >= wave_elements) ++waves_, filled = 0;
    filled += parameter.global_elements();
    add_matrices(parameter, config.muon.split);
    ends.push_back(matrices_.size());
    parameters.push_back(std::move(parameter));
  }
  StageParameters stage(model);
  const std::vector<int>& members =
      sharing.ranks.group(parallel::Group::replicated_gradients).members();
  std::vector<parallel::Ranks> ranks;
  for (const int member : members)
    ranks.push_back(parallel::planned_ranks(sharing.ranks.shape, member));
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::string state = state_name(rule.states.front(), parameters[p].name);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const Parameter& theirs = stage.of(ranks[r]).at(parameters[p].name);
      STOWAGE_ASSERT(theirs.elements() == parameters[p].elements(),
                     "{} has {} elements on rank {}, {} on this one", theirs.name,
                     theirs.elements(), members[r], parameters[p].elements());
      const int shard = ranks[r].group(parallel::gradient_group(theirs.group)).rank();
      const Range held = sharing.zero ? layout.held(state, shard) : Range{0, theirs.elements()};
      for (std::size_t m = p == 0 ? 0 : ends[p - 1]; m < ends[p]; ++m)
        add_pieces(m, static_cast<int>(r), theirs, held);
    }
  }
  std::ranges::stable_sort(pieces_, {}, &MatrixPiece::matrix);
  choose_owners(static_cast<int>(members.size()), config.muon.iterations());
  choose_sources();
}

void WholeMatrices::add_matrices(const Parameter& parameter, MuonConfig::Split split) {
  const std::int64_t columns = parameter.shape.back();
  std::int64_t first = 0;
  while (first * columns < parameter.global_elements())
    for (const std::int64_t rows : matrix_rows(parameter, split)) {
      matrices_.push_back({parameter.name, first, rows, columns, waves_ - 1, 0});
      first += rows;
    }
}

void WholeMatrices::add_pieces(std::size_t matrix, int rank, const Parameter& parameter,
                               Range held) {
  const WholeMatrix& m = matrices_[matrix];
  const Range columns = column_range(parameter);
  const std::int64_t width = columns.end - columns.begin;
  std::int64_t local_row = 0;  // where a range begins in the rank's part
  for (const Range& range : row_ranges(parameter)) {
    const std::int64_t begin = std::max(range.begin, m.first_row);
    const std::int64_t end = std::min(range.end, m.first_row + m.rows);
    const std::int64_t moved = range.begin - local_row;  // row of the whole - row of the part
    local_row += range.end - range.begin;
    if (begin >= end) continue;
    const std::int64_t first = std::max((begin - moved) * width, held.begin);
    const std::int64_t last = std::min((end - moved) * width, held.end);
    if (first >= last) continue;
    MatrixPiece piece{matrix, rank, first, last - first, {}};
    piece.in_matrix.begin = (moved - m.first_row) * m.columns + columns.begin;
    if (width < m.columns) piece.in_matrix.width = width, piece.in_matrix.stride = m.columns;
    pieces_.push_back(piece);
  }
}

void WholeMatrices::choose_owners(int ranks, const kernels::NewtonSchulzOptions& options) {
  std::vector<std::vector<int>> holders(matrices_.size());
  for (const MatrixPiece& piece : pieces_) {
    std::vector<int>& of = holders[piece.matrix];
    if (std::ranges::find(of, piece.rank) == of.end()) of.push_back(piece.rank);
  }
  std::vector<double> cost;
  for (const WholeMatrix& m : matrices_)
    cost.push_back(kernels::newton_schulz_flops(m.rows, m.columns, options));
  std::vector<std::size_t> order(matrices_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    if (matrices_[a].wave != matrices_[b].wave) return matrices_[a].wave < matrices_[b].wave;
    return cost[a] > cost[b];
  });
  std::vector<double> load(static_cast<std::size_t>(ranks));
  for (const std::size_t i : order) {
    STOWAGE_ASSERT(!holders[i].empty(), "nobody has {}", matrices_[i].parameter);
    const int owner = *std::ranges::min_element(holders[i], {}, [&](int rank) {
      return std::pair(load[static_cast<std::size_t>(rank)], rank);
    });
    matrices_[i].owner = owner;
    load[static_cast<std::size_t>(owner)] += cost[i];
  }
}

/// Its owner's if it has these elements.
void WholeMatrices::choose_sources() {
  using Key = std::tuple<std::size_t, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Key, std::vector<const MatrixPiece*>> same;
  std::vector<Key> order;
  for (const MatrixPiece& piece : pieces_) {
    const Key key{piece.matrix, piece.in_matrix.at(piece.first), piece.elements,
                  piece.in_matrix.width};
    std::vector<const MatrixPiece*>& of = same[key];
    if (of.empty()) order.push_back(key);
    of.push_back(&piece);
  }
  for (const Key& key : order) {
    const std::vector<const MatrixPiece*>& of = same[key];
    const int owner = matrices_[std::get<0>(key)].owner;
    const auto own = std::ranges::find(of, owner, &MatrixPiece::rank);
    const std::size_t other = static_cast<std::size_t>(owner) % of.size();
    sources_.push_back(own == of.end() ? *of[other] : **own);
  }
}

}  // namespace stowage::layers
