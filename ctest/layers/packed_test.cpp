// A packed batch has the loss and the gradients of its documents one by one, and lengths that
// change from step to step cost the host nothing. Built twice: in fp64 on the host, and in bf16 for
// a GPU (STOWAGE_TEST_CUDA), at sizes that reach the tensor-core kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "ctest/support/seed.hpp"
#include "tiny_model.hpp"

#if STOWAGE_TEST_CUDA
#include "ctest/kernels/need_gpu.hpp"
#include "execution/cuda_backend.hpp"
#endif

namespace stowage::ctest {
namespace {

using execution::Dtype;
using Form = layers::ModelConfig::Mamba::Form;

constexpr int kMostDocuments = 8;

#if STOWAGE_TEST_CUDA

/// Each of some ten operators rounds its result to 2^-9, on both sides.
constexpr double kTolerance = 20 * 0x1p-9;
constexpr std::int32_t kTokens = 1024;

std::unique_ptr<execution::Backend> make_backend() { return execution::make_cuda_backend(); }

forecast::TrainerOptions make_options() {
  forecast::TrainerOptions options = tiny_options(every_kind(), Dtype::bf16);
  enlarge(options, 128);
  options.model.moe.frozen_tokens = kTokens;  // a tie would send a token elsewhere
  return options;
}

#else

constexpr double kTolerance = 1e-10;
constexpr std::int32_t kTokens = 23;

std::unique_ptr<execution::Backend> make_backend() { return execution::make_host_backend(); }

forecast::TrainerOptions make_options() { return tiny_options(every_kind(), Dtype::fp64); }

#endif

class packed : public testing::Test {
 protected:
#if STOWAGE_TEST_CUDA
  void SetUp() override { STOWAGE_NEED_GPU(); }
#endif
};

/// What a batch makes of the start weights.
struct Outcome {
  double loss = 0;  ///< sum over the targets
  std::map<std::string, std::vector<double>> gradients;

  void add(const Outcome& other, double gradient_weight) {
    loss += other.loss;
    for (const auto& [name, values] : other.gradients) {
      std::vector<double>& sums = gradients[name];
      sums.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sums[i] += gradient_weight * values[i];
    }
  }
};

double relative_error(const std::vector<double>& value, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(value[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

/// @param first place of the batch's tokens in the one that their frozen choices are of
Outcome train(TinyRun& run, const TinyRun::Batch& batch, std::int32_t first = 0) {
  run.set_packing(batch.documents);
  const int experts = run.trainer().plan().options().model.moe.experts;
  run.freeze_routing(
      [=](std::int32_t t, std::int32_t r) { return ((first + t) * 3 + r * 2) % (experts - 1); });
  run.train(batch, 0.0);
  EXPECT_TRUE(run.step_ok());
  EXPECT_EQ(run.loss()[1], batch.counted);
  Outcome outcome;
  outcome.loss = run.loss()[0];
  for (const layers::Parameter& parameter : run.trainer().plan().model().parameters())
    outcome.gradients[parameter.name] = run.read(layers::gradient_name(parameter.name));
  return outcome;
}

/// One document of a batch as a batch of its own.
TinyRun::Batch cut(const TinyRun::Batch& batch, std::size_t microbatch, std::size_t document) {
  const Documents& documents = batch.documents[microbatch];
  const std::int32_t length = documents[document + 1] - documents[document];
  const auto first = static_cast<std::ptrdiff_t>(microbatch) * kTokens + documents[document];
  TinyRun::Batch one;
  one.documents = {{0, length}};
  one.tokens.assign(batch.tokens.begin() + first, batch.tokens.begin() + first + length);
  one.targets.assign(batch.targets.begin() + first, batch.targets.begin() + first + length);
  one.counted = static_cast<int>(length - std::ranges::count(one.targets, -1));
  return one;
}

/// The documents of a batch, each by a program of its own length.
Outcome train_one_by_one(const forecast::TrainerOptions& options, const TinyRun::Batch& batch) {
  Outcome sum;
  for (std::size_t m = 0; m < batch.documents.size(); ++m)
    for (std::size_t d = 0; d + 1 < batch.documents[m].size(); ++d) {
      const TinyRun::Batch one = cut(batch, m, d);
      if (one.counted == 0) continue;
      forecast::TrainerOptions alone = options;
      alone.step = {.tokens = std::ssize(one.tokens), .sequence = std::ssize(one.tokens)};
      alone.capacities = {1};
      if (alone.model.moe.frozen_tokens > 0) alone.model.moe.frozen_tokens = alone.step.tokens;
      TinyRun run(alone, make_backend());
      sum.add(train(run, one, batch.documents[m][d]),
              static_cast<double>(one.counted) / batch.counted);
    }
  return sum;
}

/// Of three microbatches: empty documents, one of a single token that has a target, the last of
/// which ends at the end; one document as long as there is room for; and random lengths.
std::vector<Documents> make_packing(std::mt19937_64& random) {
  return {{0, 0, 1, 6, 6, kTokens / 2, kTokens - 3, kTokens},
          {0, kTokens},
          draw_documents(random, kTokens, kMostDocuments)};
}

/// A batch of three microbatches, and its documents each alone.
void expect_those_of_documents(forecast::TrainerOptions options, std::mt19937_64& random) {
  options.step.microbatches = 3;
  options.capacities = {kMostDocuments};
  options.evaluation_microbatches = 0;
  TinyRun run(options, make_backend());
  run.set_packing(make_packing(random));
  const TinyRun::Batch batch = run.make_batch(1, 3);
  const Outcome together = train(run, batch);
  const Outcome expected = train_one_by_one(options, batch);
  EXPECT_NEAR(together.loss, expected.loss, kTolerance * expected.loss);
  for (const auto& [name, gradient] : together.gradients)
    EXPECT_LT(relative_error(gradient, expected.gradients.at(name)), kTolerance) << name;
}

TEST_F(packed, loss_and_gradients_are_those_of_the_documents_one_by_one) {
  std::mt19937_64 random(seed());
  for (const Form form : {Form::separate, Form::fused_forward, Form::fused}) {
    SCOPED_TRACE(testing::Message() << "form " << int(form));
    forecast::TrainerOptions options = make_options();
    options.model.mamba.form = form;
    options.model.mamba.conv_width = 4 - int(form);
    if (form == Form::fused) use_gates(options);
    expect_those_of_documents(options, random);
  }
}

// Heads of further tokens never look beyond a document's end.
TEST_F(packed, further_tokens_are_those_of_the_documents_one_by_one) {
  std::mt19937_64 random(seed());
  for (const bool shared : {false, true}) {
    forecast::TrainerOptions options = make_options();
    predict_further(options, shared);
    expect_those_of_documents(options, random);
  }
}

// The same tokens and targets in other documents have other gradients: the bound tells them apart,
// with documents so short that even what lies behind all mixers changes by more than bf16 rounds.
TEST_F(packed, other_documents_have_other_gradients) {
  const auto outcome = [](const Documents& documents) {
    forecast::TrainerOptions options = make_options();
    options.capacities = {kMostDocuments};
    TinyRun run(options, make_backend());
    run.set_documents({0, kTokens});
    TinyRun::Batch batch = run.make_batch(1, 1);
    batch.documents = {documents};
    return train(run, batch);
  };
  Documents many;
  for (int i = 0; i <= kMostDocuments; ++i) many.push_back(i * kTokens / kMostDocuments);
  const Outcome one = outcome({0, kTokens}), others = outcome(many);
  for (const auto& [name, gradient] : one.gradients)
    EXPECT_GT(relative_error(gradient, others.gradients.at(name)), 2 * kTolerance) << name;
}

// Lengths are data: the graph of a capacity serves them all, the host only fills and launches.
TEST_F(packed, a_thousand_batches_of_changing_lengths_wait_for_nothing_and_allocate_nothing) {
  constexpr int kSteps = 1000;
  constexpr std::int64_t kTinyTokens = 23;
  forecast::TrainerOptions options = tiny_options(every_kind(), Dtype::bf16);
  options.step.microbatches = 2;
  options.capacities = {2, 4, kMostDocuments};
  options.planner.graphs.mode = offload::GraphOptions::Mode::step;
  options.planner.policy.kind = offload::Policy::Kind::manual;
  options.planner.policy.offload = {{"mamba_ssm", {"mamba_ssm"}}, {"core_attn", {"core_attn"}}};
  options.planner.policy.min_tensor_bytes = 0;
  options.planner.policy.keep_exposed = false;
  TinyRun run(options, make_backend());
  const std::uint64_t allocations = run.backend().allocations();
  const std::uint64_t waits = run.backend().waits();
  std::mt19937_64 random(seed());
  for (int i = 0; i < kSteps; ++i) {
    const auto any = [&] { return draw_documents(random, kTinyTokens, kMostDocuments); };
    run.set_packing({any(), any()});
    run.train(i, 1e-3);
  }
  EXPECT_EQ(run.waits_in_steps(), 0U);
  EXPECT_EQ(run.backend().allocations(), allocations);
  EXPECT_GT(run.backend().waits(), waits);  // before steps: until a slot of inputs is free
  EXPECT_TRUE(run.step_ok());
  long steps = 0;
  for (const std::int64_t capacity : options.capacities) {
    const execution::Executor& executor = run.trainer().training(capacity).executor;
    EXPECT_GT(executor.steps(), 0) << capacity;
    EXPECT_GE(executor.counters().launches, executor.steps());
    EXPECT_GT(executor.counters().copies_out, 0);
    steps += executor.steps();
  }
  EXPECT_EQ(steps, kSteps);
}

}  // namespace
}  // namespace stowage::ctest
