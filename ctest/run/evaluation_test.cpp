// The loss of held-out data is over each of its tokens once: whatever batch, ranks and packing.
#include <gtest/gtest.h>

#include <numeric>

#include "ctest/inputs/support.hpp"
#include "execution/backend.hpp"
#include "forecast/plan/options.hpp"
#include "inputs/data/megatron_writer.hpp"
#include "layers/step/step_section.hpp"
#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"
#include "run/step/loop.hpp"

namespace stowage::run {
namespace {

constexpr std::int64_t kLength = 16;  // T
constexpr double kClose = 1e-12;      // relative, of sums in fp64 in another order

/// Documents of 1 to 40 tokens with a mask, as many as make some 30 sequences; and how many of
/// their tokens there are and count.
struct HeldOut {
  inputs::testing::TemporaryFolder folder;
  double tokens = 0, targets = 0, targets_through_documents = 0;

  explicit HeldOut(int seed = 5) {
    inputs::MegatronWriter writer(folder / "h.bin", folder / "h.idx", folder / "h.mask", 64);
    std::mt19937_64 random(seed);  // the same on all ranks
    for (int document = 0; document < 23; ++document) {
      std::vector<std::int32_t> ids(1 + random() % 40);
      std::vector<std::uint8_t> mask(ids.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<std::int32_t>(random() % 64);
        mask[i] = random() % 3 > 0 ? 1 : 0;
      }
      writer.add(ids, mask);
      const double counted = std::accumulate(mask.begin(), mask.end(), 0.0);
      tokens += static_cast<double>(ids.size());
      targets += counted - mask[0];
      targets_through_documents += counted - (document == 0 ? mask[0] : 0);
    }
    writer.finish();
  }
};

class evaluation : public testing::Test {
 protected:
  /// What initial weights, which follow from the deck alone, give on these ranks.
  Evaluations evaluate_sets(const parallel::Ranks& ranks, const std::vector<std::string>& keys,
                            std::int64_t batch) const {
    std::vector<std::string> all = {"train.dtype=fp64",
                                    "data.source=megatron",
                                    "data.path=" + file_,
                                    "train.seq_length=" + std::to_string(kLength),
                                    "train.global_batch_size=" + std::to_string(batch),
                                    "eval.steps=0"};
    all.insert(all.end(), keys.begin(), keys.end());
    const inputs::Deck deck = inputs::Deck::load(STOWAGE_SOURCE "/ctest/drivers/tiny.toml", all);
    const auto backend = execution::make_host_backend();
    inputs::Data data = open_data(deck, ranks.sequences().index, ranks.sequences().parts);
    const forecast::TrainerOptions options =
        forecast::trainer_options(deck, forecast::training_needs(deck, data),
                                  data.train->microbatches(), ranks, parallel::RankOrder::partial);
    Trainer trainer(std::make_unique<forecast::TrainerPlan>(options), *backend);
    Loop loop(trainer, data, inputs::read<layers::LearningRate>(deck), 0);
    return loop.evaluate(deck.get<std::int64_t>("eval.steps"));
  }
  Evaluation evaluate(const parallel::Ranks& ranks, std::vector<std::string> keys,
                      std::int64_t batch) const {
    keys.push_back("data.validation_path=" + file_);
    return evaluate_sets(ranks, keys, batch).all;
  }

  Evaluation alone(const std::vector<std::string>& keys, std::int64_t batch) const {
    return evaluate(parallel::planned_ranks({}, 0), keys, batch);
  }
  Evaluation together(const parallel::GridShape& shape, const std::vector<std::string>& keys,
                      std::int64_t batch) const {
    return evaluate(parallel::connect(world_, shape, parallel::make_host_transport), keys, batch);
  }

  static void expect_same(const Evaluation& found, const Evaluation& right) {
    EXPECT_EQ(found.tokens, right.tokens);
    EXPECT_EQ(found.targets, right.targets);
    EXPECT_NEAR(found.loss, right.loss, kClose * right.loss);
    EXPECT_DOUBLE_EQ(found.accuracy, right.accuracy);
  }

  const HeldOut held_out_;
  const std::string file_ = held_out_.folder / "h.idx";
  const parallel::Communicator world_ = parallel::Communicator::world();
};

TEST_F(evaluation, every_token_counts_once_at_every_batch) {
  const parallel::GridShape grid = parallel::fit_grid(world_.size());
  for (const char* packing : {"documents", "first_fit", "best_fit", "none"}) {
    std::vector<std::string> keys = {std::string("data.packing=") + packing};
    const bool through = keys[0] == "data.packing=none";
    // A state that goes on through documents is refused.
    if (through) keys.emplace_back("model.pattern=*-E");
    const Evaluation right = alone(keys, 1);
    EXPECT_EQ(right.tokens, held_out_.tokens);
    EXPECT_EQ(right.targets, through ? held_out_.targets_through_documents : held_out_.targets);
    for (const std::int64_t some : {2, 10, 64}) {
      const std::int64_t batch = (some + world_.size() - 1) / world_.size() * world_.size();
      SCOPED_TRACE(testing::Message() << packing << ", global batch " << batch);
      expect_same(together(grid, keys, batch), right);
      keys.emplace_back("train.micro_batch_size=2");
      if (batch / 2 % world_.size() == 0) expect_same(together(grid, keys, batch), right);
      keys.pop_back();
    }
    if (world_.size() > 1) continue;
    for (const std::int64_t batch : {3, 7, 33}) expect_same(alone(keys, batch), right);
  }
}

TEST_F(evaluation, every_axis_of_the_grid_gives_the_same) {
  const int ranks = world_.size();
  const std::vector<std::string> keys = {"data.packing=best_fit", "train.micro_batch_size=2"};
  const Evaluation right = alone(keys, 2);
  for (const parallel::GridShape& shape :
       {parallel::fit_grid(ranks, ranks), parallel::fit_grid(ranks, 1, ranks),
        parallel::fit_grid(ranks, 1, 1, ranks), parallel::fit_grid(ranks, 1, 1, 1, ranks)})
    for (const std::int64_t batch : {8, 24}) {
      SCOPED_TRACE(testing::Message() << shape.describe() << ", global batch " << batch);
      expect_same(together(shape, keys, batch), right);
    }
}

TEST_F(evaluation, sets_with_names_are_evaluated_apart_and_together) {
  const parallel::Ranks ranks =
      parallel::connect(world_, parallel::fit_grid(world_.size()), parallel::make_host_transport);
  const HeldOut other(6);
  const std::string second = other.folder / "h.idx";
  const Evaluation one = alone({}, 1);
  const Evaluation two =
      evaluate_sets(parallel::planned_ranks({}, 0), {"data.validation_path=" + second}, 1).all;
  for (const std::int64_t batch : {4, 64}) {
    const Evaluations both =
        evaluate_sets(ranks, {"data.validation=one=" + file_ + ",two=" + second}, batch);
    ASSERT_EQ(both.sets.size(), 2);
    EXPECT_EQ(both.sets[0].name, "one");
    expect_same(both.sets[0].found, one);
    expect_same(both.sets[1].found, two);
    EXPECT_EQ(both.all.targets, one.targets + two.targets);
    EXPECT_NEAR(both.all.loss * both.all.targets, one.loss * one.targets + two.loss * two.targets,
                1e-10);
  }
  // Files that are mixed hold out their own ends.
  const Evaluations ends = evaluate_sets(
      ranks, {"data.path=", "data.mix=a=" + file_ + ",b=" + second, "data.held_out_fraction=0.5"},
      4);
  ASSERT_EQ(ends.sets.size(), 2);
  EXPECT_EQ(ends.sets[1].name, "b");
  EXPECT_EQ(ends.sets[0].found.tokens + ends.sets[1].found.tokens, ends.all.tokens);
  EXPECT_TRUE(evaluate_sets(ranks, {"data.held_out_fraction=0.5"}, 4).sets.empty());
}

TEST_F(evaluation, a_part_is_a_fixed_one) {
  const parallel::GridShape grid = parallel::fit_grid(world_.size());
  for (const char* packing : {"data.packing=documents", "data.packing=best_fit"}) {
    const Evaluation right = alone({packing, "eval.steps=8"}, 1), all = alone({packing}, 1);
    EXPECT_LT(right.tokens, all.tokens);
    expect_same(together(grid, {packing, "eval.steps=2"}, 4), right);
    expect_same(together(grid, {packing, "eval.steps=1"}, 8), right);
    EXPECT_EQ(alone({packing, "eval.steps=1", "run.seed=99"}, 8).targets, right.targets);
    expect_same(together(grid, {packing, "eval.steps=99"}, 8), all);  // there are no more
  }
}

}  // namespace
}  // namespace stowage::run
