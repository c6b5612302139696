// With one tree of microbatches a step is the same bits on any number of data and pipeline ranks,
// with zero and without: losses, norms, evaluations, and the digest of all that is kept.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "ctest/support/seed.hpp"
#include "parallel/proof/require_joint_proof.hpp"
#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"
#include "run/state/state_digest.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

constexpr int kSteps = 3;
/// Of a step: data ranks by 8 have three each, which no node of the tree covers.
constexpr int kMicrobatches = 24;

/// Of so many ranks; those that are no stage of a pipeline have other sequences.
struct Grid {
  int ranks = 1, pipeline = 1, virtual_stages = 1;
  bool zero = false, overlap = false, zero_bubble = false;
  int leaf = 1;       ///< microbatches whose gradients are added in place
  bool away = false;  ///< states, gradients and parameters have their home on the host

  int data() const { return ranks / pipeline; }
  std::string text() const {
    return fmt::format(
        "{} ranks, pipeline {} of {} stages each, zero {}, overlap {}, zero bubble {}, leaves of "
        "{}, away {}",
        ranks, pipeline, virtual_stages, zero, overlap, zero_bubble, leaf, away);
  }
};

struct Outcome {
  std::vector<double> told;  ///< by step
  std::string digest;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

class same_bits : public testing::Test {
 protected:
  const parallel::Communicator world = parallel::Communicator::world();
  std::mt19937_64 random{std::stoull(world.broadcast(std::to_string(seed())))};
  std::vector<Documents> packing;

  void SetUp() override {
    const forecast::TrainerOptions options = tiny_options(every_kind(), Dtype::fp32);
    std::mt19937_64 documents(5);
    for (int m = 0; m < kMicrobatches; ++m)
      packing.push_back(draw_documents(documents, options.step.tokens,
                                       static_cast<int>(options.capacities.back())));
  }

  forecast::TrainerOptions options_of(Dtype dtype, const Grid& grid) const {
    forecast::TrainerOptions options = tiny_options(every_kind(), dtype);
    options.model.tied_embeddings = false;
    options.model.moe.aux_coeff = 0.02;
    options.model.moe.z_coeff = 0.01;
    options.model.z_loss_coeff = 0.02;
    options.step.sources = 2;
    options.model.virtual_stages = grid.virtual_stages;
    options.sharing.same_on_ranks = true;
    options.sharing.leaf_microbatches = grid.leaf;
    options.sharing.zero = grid.zero;
    options.sharing.overlap_microbatches = grid.overlap;
    options.sharing.schedule = grid.zero_bubble ? layers::PipelineSchedule::zero_bubble
                                                : layers::PipelineSchedule::automatic;
    options.step.microbatches = options.evaluation_microbatches = kMicrobatches / grid.data();
    if (grid.away)
      options.state.host.names = {"gradient", "parameter", "master", "adam_m", "adam_v"};
    return options;
  }

  /// Some steps on the first ranks of the job. @return the same on each of them, none elsewhere
  Outcome run(forecast::TrainerOptions options, const Grid& grid) const {
    const bool takes_part = world.rank() < grid.ranks;
    const parallel::Communicator ranks = world.split(takes_part ? 1 : 0, world.rank());
    if (!takes_part) return {};
    options.sharing.ranks =
        parallel::connect(ranks, parallel::fit_grid(grid.ranks, 1, 1, 1, grid.pipeline),
                          parallel::make_host_transport);
    const parallel::SequencePart part = options.sharing.ranks.sequences();
    TinyRun tiny(options);
    parallel::require_joint_proof(ranks, tiny.trainer().plan().programs(),
                                  parallel::RankOrder::partial);
    tiny.set_packing(packing);
    Outcome outcome;
    for (int step = 0; step < kSteps; ++step) {
      const int own = options.step.microbatches;
      TinyRun::Batch batch = tiny.make_batch(step, own, part.index * own);
      batch.step_counted = tiny.make_batch(step, kMicrobatches).counted;
      tiny.train(batch, 1e-2);
      const auto tell = [&](const std::vector<double>& values) {
        outcome.told.insert(outcome.told.end(), values.begin(), values.end());
      };
      tell(tiny.told());
      tell({tiny.grad_norm()});
      if (!tiny.router_losses().empty()) tell(tiny.router_losses());
      tell({tiny.evaluate(step + 7, {part.index, part.parts})});
    }
    run::StateDigest digest(tiny.trainer().device(), tiny.trainer().plan(), ranks);
    const run::StateDigest::Value value = digest.make();
    EXPECT_TRUE(value.differing.empty()) << value.differing.front();
    outcome.digest = value.text;
    return outcome;
  }

  /// What one rank computes, told to all of them.
  Outcome alone(Dtype dtype, int leaf = 1) const {
    const Grid grid{.leaf = leaf};
    return run(options_of(dtype, grid), grid);
  }

  void expect_same(const Outcome& found, const Outcome& wanted) const {
    if (world.rank() > 0) return;  // which alone has what one rank computes
    EXPECT_EQ(found.told, wanted.told);
    EXPECT_EQ(found.digest, wanted.digest);
  }

  Grid draw(int ranks, int leaf) {
    std::vector<int> stages;
    for (int p = 1; p <= std::min(ranks, 4); ++p)
      if (ranks % p == 0 && kMicrobatches / leaf % (ranks / p) == 0) stages.push_back(p);
    Grid grid{.ranks = ranks, .pipeline = stages[random() % stages.size()], .leaf = leaf};
    grid.zero = random() % 2 == 0;
    if (grid.pipeline == 1) grid.overlap = random() % 2 == 0;
    if (grid.pipeline == 2 && grid.data() < 4 && random() % 2 == 0) grid.virtual_stages = 2;
    if (grid.pipeline > 1 && grid.virtual_stages == 1) grid.zero_bubble = random() % 2 == 0;
    return grid;
  }
};

TEST_F(same_bits, any_grid_of_data_and_pipeline_ranks_is_one_rank) {
  for (const auto& [dtype, leaf] : {std::pair{Dtype::bf16, 1}, std::pair{Dtype::fp32, 3}}) {
    const Outcome wanted = alone(dtype, leaf);
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      const Grid grid = draw(ranks, leaf);
      SCOPED_TRACE(fmt::format("{} {}", name(dtype), grid.text()));
      expect_same(run(options_of(dtype, grid), grid), wanted);
    }
  }
}

TEST_F(same_bits, eight_data_ranks_have_nodes_that_they_do_not_share) {
  const Outcome wanted = alone(Dtype::bf16);
  for (const bool zero : {false, true}) {
    const Grid grid{.ranks = 8, .zero = zero};
    SCOPED_TRACE(grid.text());
    expect_same(run(options_of(Dtype::bf16, grid), grid), wanted);
  }
}

TEST_F(same_bits, weights_gradients_may_come_later) {
  const Outcome wanted = alone(Dtype::bf16);
  for (const int pipeline : {2, 4}) {
    const Grid grid{.ranks = 4, .pipeline = pipeline, .zero_bubble = true};
    SCOPED_TRACE(grid.text());
    expect_same(run(options_of(Dtype::bf16, grid), grid), wanted);
  }
}

TEST_F(same_bits, no_home_changes_a_bit) {
  const Outcome wanted = alone(Dtype::bf16);
  for (const Grid& grid : {Grid{.away = true}, Grid{.ranks = 2, .zero = true, .away = true},
                           Grid{.ranks = 4, .pipeline = 2, .away = true}}) {
    SCOPED_TRACE(grid.text());
    expect_same(run(options_of(Dtype::bf16, grid), grid), wanted);
  }
}

/// Two on one rank, of which the second ends with the step; none on a rank of two.
TEST_F(same_bits, a_leaf_may_be_all_microbatches_of_a_rank) {
  const Outcome wanted = alone(Dtype::bf16, 12);
  const Grid two{.ranks = 2, .zero = true, .leaf = 12};
  expect_same(run(options_of(Dtype::bf16, two), two), wanted);
}

/// What the others would not notice if nothing depended on an order.
TEST_F(same_bits, another_order_is_another_sum) {
  const Grid two{.ranks = 2};
  const Outcome wanted = alone(Dtype::bf16);
  forecast::TrainerOptions by_rank = options_of(Dtype::bf16, two);
  by_rank.sharing.same_on_ranks = false;
  const Outcome other = run(by_rank, two);
  forecast::TrainerOptions one_by_one = options_of(Dtype::bf16, {});
  one_by_one.sharing.same_on_ranks = false;
  const Outcome sequential = run(one_by_one, {});
  if (world.rank() > 0) return;
  EXPECT_NE(other.digest, wanted.digest);
  EXPECT_NE(sequential.digest, wanted.digest);
  EXPECT_NE(sequential.digest, other.digest);
}

}  // namespace
}  // namespace stowage::ctest
