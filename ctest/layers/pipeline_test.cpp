// Stages of a pipeline compute what one rank with the whole model does: losses, every gradient,
// parameters and states after some updates.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "parallel/proof/require_joint_proof.hpp"
#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

constexpr int kSteps = 2;

/// What a run leaves on a rank.
struct Outcome {
  struct Part {
    std::int64_t first = 0;  ///< element of the whole tensor
    std::vector<double> values;
  };

  std::vector<double> losses, norms, evaluations;
  std::map<std::string, Part> tensors;  ///< what this rank answers for
};

/// A pipeline of some stages, beside each other as often as there are ranks for it.
class Pipeline {
 public:
  explicit Pipeline(int stages) : stages_(stages), copies_(world_.size() / stages) {}

  int copies() const { return copies_; }

  /// The stages of this rank's pipeline. @param order of the communication of a rank
  Outcome run(forecast::TrainerOptions options,
              parallel::RankOrder order = parallel::RankOrder::partial) const {
    options.planner.chains = {order == parallel::RankOrder::chain,
                              std::string(parallel::name(parallel::kApart))};
    options.sharing.ranks = parallel::connect(
        world_, parallel::fit_grid(world_.size(), 1, 1, 1, stages_), parallel::make_host_transport);
    options.evaluation_microbatches = options.step.microbatches;
    TinyRun tiny(options);
    parallel::require_joint_proof(world_, tiny.trainer().plan().programs(), order);
    return run(tiny, {options.sharing.ranks.coordinates[parallel::Axis::data], copies_});
  }

  /// The whole model, here, on the tokens of all ranks.
  Outcome run_whole(forecast::TrainerOptions options) const {
    options.step.microbatches *= copies_;
    options.evaluation_microbatches = options.step.microbatches;
    options.sharing.zero = false;
    TinyRun tiny(options);
    return run(tiny, {0, 1});
  }

 private:
  static Outcome run(TinyRun& tiny, TinyRun::Part part) {
    Outcome outcome;
    for (int step = 0; step < kSteps; ++step) {
      tiny.train(step, 1e-2, part);
      for (const double value : tiny.told()) outcome.losses.push_back(value);
      outcome.norms.push_back(tiny.grad_norm());
      outcome.evaluations.push_back(tiny.evaluate(step + 7, part));
    }
    const execution::PersistentLayout& layout = tiny.trainer().plan().layout();
    const layers::Sharing& sharing = tiny.trainer().plan().options().sharing;
    for (const execution::Bucket& bucket : layout.buckets())
      for (const std::string& name : bucket.tensors) {
        if (!layout.has(name) || bucket.dtype == Dtype::int64) continue;
        Outcome::Part mine{layout.held(name).begin, tiny.read(name)};
        if (bucket.shards.parts > 1 && bucket.shards.held < 0) {
          const execution::Range own = layout.held(name, sharing.holders(bucket.group).rank());
          mine = {own.begin, {mine.values.begin() + own.begin, mine.values.begin() + own.end}};
        }
        outcome.tensors[name] = std::move(mine);
      }
    return outcome;
  }

  const parallel::Communicator world_ = parallel::Communicator::world();
  int stages_;
  int copies_;
};

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// Everything within `band` of the whole tensor's norm.
void expect_equal(const Outcome& stages, const Outcome& whole, double band) {
  const auto compare = [band](const std::vector<double>& found, const std::vector<double>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(found[i], wanted[i], band * wanted[i]);
  };
  compare(stages.losses, whole.losses);
  compare(stages.norms, whole.norms);
  compare(stages.evaluations, whole.evaluations);
  EXPECT_FALSE(stages.tensors.empty());
  for (const auto& [name, part] : stages.tensors) {
    const std::vector<double>& all = whole.tensors.at(name).values;
    const double most = band * norm(all);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < part.values.size(); ++i)
      wrong += !(std::abs(part.values[i] - all[static_cast<std::size_t>(part.first) + i]) <= most);
    EXPECT_EQ(wrong, 0U) << name;
  }
}

forecast::TrainerOptions options_of(const std::string& pattern, Dtype dtype, int microbatches) {
  forecast::TrainerOptions options = tiny_options(pattern, dtype);
  options.step.microbatches = microbatches;
  options.model.moe.aux_coeff = 0.01;
  options.model.moe.z_coeff = 0.01;
  options.model.z_loss_coeff = 0.02;
  options.model.tells_stream = true;
  options.step.sources = 2;
  return options;
}

/// One stage for each rank: sums are made in one rank's order, so nothing differs by a bit.
TEST(pipeline, one_stage_a_rank_gives_the_bits_of_one_rank) {
  const int stages = parallel::Communicator::world().size();
  const Pipeline pipeline(stages);
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp64})
    for (const int microbatches : {1, stages, stages + 1, 4 * stages}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ", microbatches " << microbatches);
      forecast::TrainerOptions options = options_of("M*-EM-E-", dtype, microbatches);
      const Outcome whole = pipeline.run_whole(options);
      expect_equal(pipeline.run(options), whole, 0);
      options.sharing.schedule = layers::PipelineSchedule::zero_bubble;
      expect_equal(pipeline.run(options), whole, 0);
    }
}

TEST(pipeline, several_stages_a_rank_give_the_bits_of_one_rank) {
  const int ranks = parallel::Communicator::world().size();
  const Pipeline pipeline(ranks);
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp64})
    for (const int groups : {1, 2, 4}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ", groups " << groups);
      forecast::TrainerOptions options =
          options_of(ranks == 8 ? "M*-EM-E-M*-E*EM-" : "M*-EM-E-", dtype, groups * ranks);
      options.model.virtual_stages = 2;
      options.sharing.schedule = layers::PipelineSchedule::interleaved;
      expect_equal(pipeline.run(options), pipeline.run_whole(options), 0);
    }
}

TEST(pipeline, several_stages_a_rank_may_be_uneven_and_tied) {
  const Pipeline pipeline(2);
  for (const bool zero : {false, true})
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(testing::Message() << "zero " << zero << ", tied " << tied);
      forecast::TrainerOptions options = options_of("M|*-E|M-|E|-*|M", Dtype::fp64, 4);
      options.sharing.zero = zero;
      options.sharing.schedule = layers::PipelineSchedule::interleaved;
      options.model.virtual_stages = 3;
      options.model.tied_embeddings = tied;
      const Outcome partial = pipeline.run(options);
      expect_equal(partial, pipeline.run_whole(options), 1e-10);
      expect_equal(pipeline.run(options, parallel::RankOrder::chain), partial, 0);
    }
}

TEST(pipeline, cuts_make_uneven_stages) {
  const int stages = parallel::Communicator::world().size();
  const Pipeline pipeline(stages);
  const std::map<int, std::string> cut = {
      {2, "M|*-EM-E"}, {4, "M|*-EM|-|E"}, {8, "M|*|-|EM-|E|-|*|M"}};
  const forecast::TrainerOptions options = options_of(cut.at(stages), Dtype::fp64, 2 * stages);
  expect_equal(pipeline.run(options), pipeline.run_whole(options), 0);
}

TEST(pipeline, stages_beside_each_other_share_the_tokens_of_one_rank) {
  const Pipeline pipeline(2);
  for (const bool zero : {false, true})
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(testing::Message() << "zero " << zero << ", tied " << tied);
      forecast::TrainerOptions options = options_of("M*-E", Dtype::fp64, 3);
      options.sharing.zero = zero;
      if (zero) options.sharing.schedule = layers::PipelineSchedule::zero_bubble;
      options.model.tied_embeddings = tied;
      const Outcome partial = pipeline.run(options);
      expect_equal(partial, pipeline.run_whole(options), 1e-10);
      expect_equal(pipeline.run(options, parallel::RankOrder::chain), partial, 0);
    }
}

TEST(pipeline, heads_of_further_tokens_stand_with_the_last_stage) {
  const Pipeline pipeline(2);
  using Schedule = layers::PipelineSchedule;
  for (const Schedule schedule : {Schedule::one_forward_one_backward, Schedule::zero_bubble})
    for (const bool shared : {false, true}) {
      SCOPED_TRACE(testing::Message() << name(schedule) << ", one block " << shared);
      forecast::TrainerOptions options = options_of("M*-E", Dtype::fp64, 3);
      predict_further(options, shared);
      options.sharing.zero = shared;
      options.sharing.schedule = schedule;
      options.model.tied_embeddings = shared;
      const Outcome partial = pipeline.run(options);
      expect_equal(partial, pipeline.run_whole(options), 1e-10);
      expect_equal(pipeline.run(options, parallel::RankOrder::chain), partial, 0);
    }
}

TEST(pipeline, a_tied_weight_stays_equal_at_both_ends) {
  const parallel::Communicator world = parallel::Communicator::world();
  const Pipeline pipeline(world.size());
  forecast::TrainerOptions options = options_of("M*-E-M-*", Dtype::bf16, world.size());
  options.model.tied_embeddings = true;
  const Outcome first = pipeline.run(options), again = pipeline.run(options);
  expect_equal(again, first, 0);
  std::string mine;
  for (const auto& [name, part] : first.tensors)
    if (name.ends_with("embedding.weight"))
      mine += fmt::format("{} {}\n", name, fmt::join(part.values, " "));
  EXPECT_EQ(mine.empty(), world.rank() > 0 && world.rank() + 1 < world.size());
  const std::vector<std::string> all = world.gather(mine);
  if (world.rank() == 0) {
    EXPECT_EQ(all.front(), all.back());
  }
}

}  // namespace
}  // namespace stowage::ctest
