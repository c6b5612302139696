// An optimizer is said once: with another one than AdamW, what outlives a step and what it takes
// follow from its row.
#include <gtest/gtest.h>

#include <cmath>
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
  EXPECT_EQ(forecast::count_bytes(plan.model(), microbatch, {}, {.ema = true}, false,
                                  plan.options().sharing.ranks)
                .embedding.state,
            elements * (2 + 4 + 4 + 8 + 4));
}

TEST(optimizers, memory_counts_in_the_part_that_has_the_parameter) {
  const forecast::TrainerPlan plan(options_of(layers::kAdamw, Dtype::fp32));
  const layers::Model& model = plan.model();
  const forecast::PartMemory memory = forecast::count_bytes(
      model, forecast::one_microbatch(model, plan.options().step, plan.layout()), {}, {}, false,
      plan.options().sharing.ranks);
  std::map<int, double> expected;
  for (const layers::Parameter& p : model.parameters())
    expected[model.part_of(p.name)] += 16 * static_cast<double>(p.elements());
  ASSERT_EQ(memory.layers.size(), 4u);
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(memory.layers[layer].state, expected.at(layer)) << layer;
    EXPECT_GT(memory.layers[layer].fixed + memory.layers[layer].movable, 0) << layer;
  }
  EXPECT_EQ(memory.embedding.state, expected.at(-1));
  EXPECT_EQ(memory.head.state,
            expected.at(4) + (model.head_has_embedding() ? expected.at(-1) : 0.0));
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

/// The average of the weights that three steps leave: masters, or parameters without them.
void expect_average(forecast::TrainerOptions options, Dtype storage, const char* what) {
  constexpr double kDecay = 0.75;
  options.optimizer.ema_decay = kDecay;
  options.optimizer.lr_factors = {"embedding.weight 0"};  // frozen
  TinyRun run(std::move(options));
  const std::vector<layers::Parameter> parameters = run.trainer().plan().model().parameters();
  std::map<std::string, std::vector<double>> averages;
  const std::string trained = parameters.front().name, frozen = "embedding.weight";
  const bool has_master = run.trainer().plan().layout().is_part(layers::master_name(trained));
  const auto weight = [&](const std::string& name) {
    return run.read(has_master ? layers::master_name(name) : name);
  };
  for (const layers::Parameter& p : parameters) {
    averages[p.name] = weight(p.name);
    if (storage == Dtype::fp64 || has_master) {
      EXPECT_EQ(run.read("ema/" + p.name), averages[p.name]) << p.name;
    }
  }
  for (int step = 0; step < 3; ++step) {
    run.train(step, 1e-2);
    for (const layers::Parameter& p : parameters) {
      const std::vector<double> now = weight(p.name), found = run.read("ema/" + p.name);
      std::vector<double>& average = averages[p.name];
      ASSERT_EQ(found.size(), average.size());
      for (std::size_t i = 0; i < now.size(); ++i) {
        average[i] = kDecay * average[i] + (1 - kDecay) * now[i];
        // Each step rounds three times; without masters it begins at weights that are not rounded.
        const double size = std::abs(average[i]) + std::abs(now[i]);
        const Dtype begun =
            has_master || storage == Dtype::fp64 ? execution::accumulation(storage) : storage;
        EXPECT_NEAR(found[i], average[i], 12 * execution::epsilon(begun) * size) << p.name << what;
      }
    }
  }
  EXPECT_NE(averages[trained], weight(trained));
  EXPECT_EQ(averages[frozen], weight(frozen));
}

TEST(optimizers, an_average_is_that_of_its_formula) {
  for (const Dtype storage : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
    expect_average(options_of(layers::kAdamw, storage), storage, "");
    forecast::TrainerOptions windows = options_of(layers::kMuon, storage);
    windows.optimizer.window_elements = execution::kBucketGrain;
    windows.state.host.names = {"ema"};
    expect_average(windows, storage, " on the host");
  }
  forecast::TrainerOptions bytes = options_of(layers::kAdamw, Dtype::bf16);
  bytes.state.type = {&layers::kStatesOf3Bytes};
  expect_average(bytes, Dtype::bf16, " of three bytes");
}

TEST(optimizers, an_average_changes_no_bit_of_what_is_trained) {
  forecast::TrainerOptions options = options_of(layers::kAdamw, Dtype::bf16);
  TinyRun plain(options);
  options.optimizer.ema_decay = 0.9;
  TinyRun averaged(options);
  for (TinyRun* run : {&plain, &averaged})
    for (int step = 0; step < 2; ++step) run->train(step, 1e-2);
  for (const layers::Parameter& p : plain.trainer().plan().model().parameters())
    for (const std::string& name : {p.name, layers::master_name(p.name), "adam_v/" + p.name})
      EXPECT_EQ(plain.read(name), averaged.read(name)) << name;
}

/// All that is trained, by part, in the order of kUpdateSquares.
std::vector<double> squares_of_changes(const layers::Model& model,
                                       const std::map<std::string, std::vector<double>>& before,
                                       const std::map<std::string, std::vector<double>>& after) {
  std::vector<double> squares(static_cast<std::size_t>(model.config().layers()) + 2);
  for (const auto& [name, values] : after)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double change = values[i] - before.at(name)[i];
      squares[static_cast<std::size_t>(1 + model.part_of(name))] += change * change;
    }
  return squares;
}

/// Two steps tell what they change, and leave the state that they leave without.
void expect_norms_of_updates(forecast::TrainerOptions options, const char* what) {
  options.optimizer.window_elements = execution::kBucketGrain;
  options.optimizer.lr_factors = {"layers.1.* 0"};  // frozen
  TinyRun plain(options);
  options.optimizer.update_norms = 1;
  TinyRun run(std::move(options));
  EXPECT_FALSE(plain.trainer().plan().training().front()->recorded.asked);
  const layers::Model& model = run.trainer().plan().model();
  const auto weights = [&] {
    std::map<std::string, std::vector<double>> all;
    for (const layers::Parameter& p : model.parameters()) {
      const std::string master = layers::master_name(p.name);
      all[p.name] = run.read(run.trainer().plan().layout().is_part(master) ? master : p.name);
    }
    return all;
  };
  for (int step = 0; step < 2; ++step) {
    const auto before = weights();
    plain.train(step, 1e-2);
    run.train(step, 1e-2);
    const std::vector<double> expected = squares_of_changes(model, before, weights());
    const std::vector<double> found = run.update_squares();
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t part = 0; part < found.size(); ++part) {
      EXPECT_NEAR(found[part], expected[part], 1e-6 * expected[part]) << part << what;
      EXPECT_EQ(found[part] > 0, part != 2) << part << what;
    }
    EXPECT_TRUE(run.state() == plain.state()) << what;
  }
}

TEST(optimizers, a_step_tells_what_it_changes) {
  for (const layers::Optimizer* optimizer : {&layers::kAdamw, &layers::kMuon, &kDescent})
    for (const Dtype storage : {Dtype::fp64, Dtype::fp32, Dtype::bf16})
      expect_norms_of_updates(options_of(*optimizer, storage), optimizer->name.data());
  forecast::TrainerOptions bytes = options_of(layers::kAdamw, Dtype::bf16);
  bytes.state.type = {&layers::kStatesOf3Bytes};
  expect_norms_of_updates(bytes, " of three bytes");
  forecast::TrainerOptions host = options_of(layers::kMuon, Dtype::bf16);
  host.state.host.names = {"master", "muon_m"};
  expect_norms_of_updates(host, " on the host");
}

TEST(optimizers, a_bad_step_changes_by_nothing) {
  forecast::TrainerOptions options = options_of(layers::kAdamw, Dtype::bf16);
  options.optimizer.update_norms = 1;
  TinyRun run(std::move(options));
  std::vector<double> embedding = run.read("embedding.weight");
  embedding.assign(embedding.size(), std::nan(""));
  run.write("embedding.weight", embedding);
  run.train(0, 1e-2);
  EXPECT_FALSE(run.step_ok());
  const std::vector<double> squares = run.update_squares();
  EXPECT_EQ(squares, std::vector<double>(squares.size()));
}

}  // namespace
}  // namespace stowage::ctest
