// The matrices of a stage: all ranks make the same table, every element of a matrix has one source,
// every rank that has an element gets it back, and owners have equal work.
#include "layers/step/whole_matrices.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "layers/state/state.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using layers::MatrixPiece;
using layers::MuonConfig;
using layers::WholeMatrices;
using parallel::Group;

constexpr std::int64_t kWave = 2000;  // elements: several waves

forecast::TrainerOptions options_of(MuonConfig::Split split) {
  forecast::TrainerOptions options = tiny_options("M*-EG", execution::Dtype::bf16);
  options.model.attention.kv_heads = 2;
  options.model.vocabulary = 16;
  options.model.mamba.groups = 2;
  options.model.delta.key_heads = 2;
  options.model.delta.value_heads = 4;
  options.model.mlp.ffn = 12;
  options.model.moe = {.experts = 8, .topk = 2, .ffn = 7, .shared_ffn = 8};
  predict_further(options, false, "*E");
  options.optimizer.muon.split = split;
  options.state.optimizer = &layers::kMuon;
  return options;
}

layers::Sharing sharing_of(const parallel::GridShape& shape, int rank, bool zero) {
  layers::Sharing sharing;
  sharing.ranks = parallel::planned_ranks(shape, rank);
  sharing.zero = zero;
  return sharing;
}

WholeMatrices of_rank(const forecast::TrainerOptions& options, const parallel::GridShape& shape,
                      int rank, bool zero) {
  const layers::Sharing sharing = sharing_of(shape, rank, zero);
  const layers::Model model(options.model, options.precision, 1, sharing.ranks);
  const execution::PersistentLayout layout = layers::lay_out_state(
      model.parameters(), model.states(), options.precision, options.state, sharing);
  return {model, layout, sharing, layers::kMuon, options.optimizer, kWave};
}

// All that decays, but what is not between hidden rows: rows of tokens, and what chooses or gates.
TEST(whole_matrices, every_matrix_between_hidden_rows_says_its_projections) {
  const forecast::TrainerOptions options = options_of(MuonConfig::Split::projections);
  const layers::Model model(options.model, options.precision, 1, parallel::planned_ranks({}, 0));
  int matrices = 0;
  for (const layers::Parameter& p : model.parameters()) {
    const bool other = p.name == "embedding.weight" || p.name == "output.weight" ||
                       p.name.ends_with("router.weight") || p.name.ends_with("gate.weight");
    EXPECT_EQ(!p.projections.empty(), p.decay && !other) << p.name;
    std::int64_t rows = 0;
    for (const layers::Projection& projection : p.projections) rows += projection.rows;
    if (rows > 0) {
      EXPECT_EQ(rows, p.shape[p.shape.size() - 2]) << p.name;
      ++matrices;
    }
  }
  EXPECT_GT(matrices, 15);
}

std::vector<parallel::GridShape> grids() {
  return {parallel::fit_grid(1),          parallel::fit_grid(4),
          parallel::fit_grid(4, 2),       parallel::fit_grid(4, 4),
          parallel::fit_grid(8, 2, 1, 2), parallel::fit_grid(4, 1, 2),
          parallel::fit_grid(4, 1, 1, 4), parallel::fit_grid(4, 2, 1, 1, 2)};
}

/// Elements of matrices that pieces are, each with how many pieces have it.
std::map<std::pair<std::size_t, std::int64_t>, int> elements_of(const std::vector<MatrixPiece>& all,
                                                                int rank) {
  std::map<std::pair<std::size_t, std::int64_t>, int> found;
  for (const MatrixPiece& piece : all)
    if (rank < 0 || piece.rank == rank)
      for (std::int64_t l = piece.first; l < piece.first + piece.elements; ++l)
        ++found[{piece.matrix, piece.in_matrix.at(l)}];
  return found;
}

void expect_whole(const WholeMatrices& table) {
  const auto sources = elements_of(table.sources(), -1);
  std::size_t all = 0;
  for (const layers::WholeMatrix& m : table.all()) all += static_cast<std::size_t>(m.elements());
  EXPECT_EQ(sources.size(), all);
  for (const auto& [element, count] : sources) {
    ASSERT_EQ(count, 1) << "matrix " << element.first << " element " << element.second;
    ASSERT_LT(element.second, table.all()[element.first].elements());
    ASSERT_GE(element.second, 0);
  }
}

TEST(whole_matrices, every_element_has_one_source_on_any_grid) {
  for (const MuonConfig::Split split :
       {MuonConfig::Split::none, MuonConfig::Split::projections, MuonConfig::Split::heads})
    for (const parallel::GridShape& shape : grids())
      for (const bool zero : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{} zero {} split {}", shape.describe(), zero, static_cast<int>(split)));
        const forecast::TrainerOptions options = options_of(split);
        for (int rank = 0; rank < shape.ranks(); ++rank)
          expect_whole(of_rank(options, shape, rank, zero));
      }
}

// What the ranks of a stage say of each other is what each says of itself.
TEST(whole_matrices, ranks_of_a_stage_have_one_table) {
  for (const parallel::GridShape& shape : grids())
    for (const bool zero : {false, true}) {
      SCOPED_TRACE(fmt::format("{} zero {}", shape.describe(), zero));
      const forecast::TrainerOptions options = options_of(MuonConfig::Split::projections);
      const std::vector<int> stage =
          parallel::planned_ranks(shape, 0).group(Group::replicated_gradients).members();
      const WholeMatrices first = of_rank(options, shape, stage.front(), zero);
      for (const int rank : stage) {
        const WholeMatrices other = of_rank(options, shape, rank, zero);
        ASSERT_EQ(other.all().size(), first.all().size());
        for (std::size_t i = 0; i < first.all().size(); ++i) {
          EXPECT_EQ(other.all()[i].owner, first.all()[i].owner);
          EXPECT_EQ(other.all()[i].wave, first.all()[i].wave);
        }
        for (std::size_t r = 0; r < stage.size(); ++r)
          EXPECT_EQ(elements_of(other.pieces(), static_cast<int>(r)),
                    elements_of(first.pieces(), static_cast<int>(r)));
      }
    }
}

// A rank is given back all elements whose states it has, those of copies too.
TEST(whole_matrices, every_rank_gets_what_it_has) {
  for (const parallel::GridShape& shape : grids())
    for (const bool zero : {false, true}) {
      SCOPED_TRACE(fmt::format("{} zero {}", shape.describe(), zero));
      const forecast::TrainerOptions options = options_of(MuonConfig::Split::heads);
      for (int rank = 0; rank < shape.ranks(); ++rank) {
        const layers::Sharing sharing = sharing_of(shape, rank, zero);
        const layers::Model model(options.model, options.precision, 1, sharing.ranks);
        const execution::PersistentLayout layout = layers::lay_out_state(
            model.parameters(), model.states(), options.precision, options.state, sharing);
        std::int64_t held = 0, pieces = 0;
        for (const layers::Parameter& p : model.parameters())
          if (!p.projections.empty()) {
            const execution::Range range = layout.held(layers::state_name("muon_m", p.name));
            held += range.end - range.begin;
          }
        const int me = sharing.ranks.group(Group::replicated_gradients).rank();
        const WholeMatrices table = of_rank(options, shape, rank, zero);
        for (const MatrixPiece& piece : table.pieces())
          if (piece.rank == me) pieces += piece.elements;
        EXPECT_EQ(pieces, held);
      }
    }
}

// Within the largest matrix, where all ranks have some of all.
TEST(whole_matrices, owners_have_equal_work) {
  forecast::TrainerOptions options = options_of(MuonConfig::Split::projections);
  options.model.pattern = "M*-EG*-M*-";
  const parallel::GridShape shape = parallel::fit_grid(4);
  const WholeMatrices table = of_rank(options, shape, 0, false);
  std::map<int, double> load;
  double largest = 0;
  for (const layers::WholeMatrix& m : table.all()) {
    const double flops = kernels::newton_schulz_flops(m.rows, m.columns, {});
    load[m.owner] += flops;
    largest = std::max(largest, flops);
  }
  EXPECT_EQ(load.size(), 4U);
  double least = load.begin()->second, most = least;
  for (const auto& [rank, flops] : load)
    least = std::min(least, flops), most = std::max(most, flops);
  EXPECT_LE(most - least, largest);
  EXPECT_GT(table.waves(), 2);
}

}  // namespace
}  // namespace stowage::ctest
