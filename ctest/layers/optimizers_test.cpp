// An optimizer is said once: with another one than AdamW, what outlives a step and what it takes
// follow from its row.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "forecast/pipeline/balance.hpp"
#include "forecast/pipeline/part_bytes.hpp"
#include "tiny_model.hpp"
#include "toy_optimizer.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

forecast::TrainerOptions options_of(const layers::Optimizer& optimizer, Dtype storage) {
  forecast::TrainerOptions options = tiny_options("M*-E", storage);
  options.state.optimizer = &optimizer;
  return options;
}

TEST(optimizers, state_is_what_the_row_says) {
  for (const layers::Optimizer* optimizer : {&layers::kAdamw, &kDescent})
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      const forecast::TrainerPlan plan(options_of(*optimizer, storage));
      std::set<std::string> expected, found;
      for (const layers::Parameter& p : plan.model().parameters()) {
        for (const std::string_view state : optimizer->states)
          expected.insert(layers::state_name(state, p.name));
        if (storage == Dtype::bf16) expected.insert(layers::master_name(p.name));
      }
      for (const execution::Bucket& bucket : plan.layout().buckets())
        for (const std::string& name : bucket.tensors)
          if (!bucket.group.empty() &&
              plan.layout().whole(name).lifetime == execution::Lifetime::optimizer_state)
            found.insert(name);
      EXPECT_EQ(found, expected) << optimizer->name;
    }
}

TEST(optimizers, one_state_takes_less_memory_by_part) {
  const forecast::TrainerPlan plan(options_of(kDescent, Dtype::bf16));
  const execution::Program microbatch =
      forecast::one_microbatch(plan.model(), plan.options().step, plan.layout());
  layers::StatesOnHost host;
  const auto state_bytes = [&](const layers::Optimizer& optimizer) {
    return forecast::count_bytes(plan.model(), microbatch, {},
                                 {.optimizer = &optimizer, .host = host}, false,
                                 plan.options().sharing.ranks)
        .embedding.state;
  };
  const auto elements = static_cast<double>(plan.model().embedding().elements());
  EXPECT_EQ(state_bytes(kDescent), elements * (2 + 4 + 4 + 4));
  EXPECT_EQ(state_bytes(layers::kAdamw), elements * (2 + 4 + 4 + 8));
  EXPECT_EQ(forecast::count_bytes(plan.model(), microbatch, {}, {.type = {&layers::kStatesOfBf16}},
                                  false, plan.options().sharing.ranks)
                .embedding.state,
            elements * (2 + 4 + 4 + 4));
  EXPECT_EQ(
      forecast::count_bytes(plan.model(), microbatch, {}, {.type = {&layers::kStatesOf3Bytes}},
                            false, plan.options().sharing.ranks)
          .embedding.state,
      elements * (2 + 4 + 1 + 2));
  host = {.names = {"master", "adam_v"}, .fraction = 0.5};
  EXPECT_EQ(state_bytes(layers::kAdamw), elements * (2 + 4 + 2 + 4 + 2));
}

TEST(optimizers, steps_of_momentum_are_those_of_its_formula) {
  constexpr double kRate = 1e-2;
  TinyRun run(options_of(kDescent, Dtype::fp64));
  const std::vector<layers::Parameter> parameters = run.trainer().plan().model().parameters();
  std::map<std::string, std::vector<double>> values, momenta;
  for (const layers::Parameter& p : parameters) values[p.name] = run.read(p.name);
  for (int step = 0; step < 3; ++step) {
    run.train(step, kRate);
    for (const layers::Parameter& p : parameters) {
      const std::vector<double> gradient = run.read(layers::gradient_name(p.name));
      std::vector<double>& momentum = momenta[p.name];
      momentum.resize(gradient.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        momentum[i] = kMomentum * momentum[i] + gradient[i];
        values[p.name][i] -= kRate * momentum[i];
      }
      EXPECT_EQ(run.read("momentum/" + p.name), momentum) << p.name;
      EXPECT_EQ(run.read(p.name), values[p.name]) << p.name;
    }
  }
}

}  // namespace
}  // namespace stowage::ctest
