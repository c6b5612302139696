// Muon in whole steps beside a program of its own, written from the papers: in fp64, over five
// steps, for every way to split weights and to scale updates.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "layers/step/whole_matrices.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;
using Config = layers::MuonConfig;
using Values = std::vector<double>;

constexpr double kRate = 1e-2, kDecay = 0.1;

/// Singular vectors with singular values near one, of a row-major matrix: Jordan's recipe.
Values orthogonalised(const Values& given, std::size_t rows, std::size_t columns) {
  const bool tall = rows > columns;
  const std::size_t n = tall ? columns : rows, length = tall ? rows : columns;
  const auto at = [&](std::size_t i, std::size_t j) {
    return tall ? j * columns + i : i * columns + j;
  };
  double squares = 0;
  for (const double value : given) squares += value * value;
  std::vector<Values> x(n, Values(length));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < length; ++j)
      x[i][j] = given[at(i, j)] / (std::sqrt(squares) + 1e-7);
  for (int step = 0; step < 5; ++step) {
    std::vector<Values> a(n, Values(n)), b(n, Values(n)), next(n, Values(length));
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t k = 0; k < length; ++k) a[i][j] += x[i][k] * x[j][k];
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        b[i][j] = -4.7750 * a[i][j];
        for (std::size_t k = 0; k < n; ++k) b[i][j] += 2.0315 * a[i][k] * a[k][j];
      }
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < length; ++j) {
        next[i][j] = 3.4445 * x[i][j];
        for (std::size_t k = 0; k < n; ++k) next[i][j] += b[i][k] * x[k][j];
      }
    x = next;
  }
  Values result(given.size());
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < length; ++j) result[at(i, j)] = x[i][j];
  return result;
}

/// How many rows each matrix of a weight has: of tiny_model's sizes, by the weight's name.
std::vector<std::int64_t> rows_of(const layers::ModelConfig& model, const std::string& name,
                                  Config::Split split) {
  const auto ends = [&](const char* what) { return name.ends_with(what); };
  const std::int64_t head = model.attention.head_dim;
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;  // rows, and of a head
  const auto& attention = model.attention;
  const auto& mamba = model.mamba;
  if (ends("attn.qkv.weight")) {
    parts = {{attention.heads * head, head},
             {attention.kv_heads * head, head},
             {attention.kv_heads * head, head}};
  } else if (ends("mamba.in_proj.weight")) {
    const std::int64_t inner = std::int64_t{mamba.heads} * mamba.head_dim;
    const std::int64_t group = std::int64_t{mamba.groups} * mamba.state;
    parts = {{inner, mamba.head_dim},
             {inner, mamba.head_dim},
             {group, mamba.state},
             {group, mamba.state},
             {mamba.heads, mamba.heads}};
  }
  std::vector<std::int64_t> rows;
  if (split == Config::Split::none) parts.clear();
  for (const auto& [all, each] : parts)
    if (split == Config::Split::heads)
      for (std::int64_t i = 0; i < all; i += each) rows.push_back(each);
    else
      rows.push_back(all);
  return rows;
}

bool is_matrix(const std::string& name) {
  for (const char* other :
       {"embedding", "output", "norm", "router", "conv1d", "A_log", ".D", "bias"})
    if (name.find(other) != std::string::npos) return false;
  return true;
}

/// One parameter as the papers update it.
class PlainRule {
 public:
  PlainRule(const forecast::TrainerOptions& options, const layers::Parameter& p, Values values)
      : options_(options),
        p_(p),
        values_(std::move(values)),
        m_(values_.size()),
        v_(values_.size()) {}

  void step(Values gradient, double norm, int count) {
    const layers::OptimizerConfig& config = options_.optimizer;
    if (config.clip > 0)
      for (double& g : gradient) g *= std::min(1.0, config.clip / (norm + 1e-6));
    const double decay = p_.decay ? kDecay : 0;
    if (!is_matrix(p_.name)) {
      for (std::size_t i = 0; i < values_.size(); ++i) {
        m_[i] = config.beta1 * m_[i] + (1 - config.beta1) * gradient[i];
        v_[i] = config.beta2 * v_[i] + (1 - config.beta2) * gradient[i] * gradient[i];
        const double m = m_[i] / (1 - std::pow(config.beta1, count));
        const double v = v_[i] / (1 - std::pow(config.beta2, count));
        values_[i] -= kRate * (m / (std::sqrt(v) + config.epsilon) + decay * values_[i]);
      }
      return;
    }
    const Config& muon = config.muon;
    Values direction(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i) {
      m_[i] = muon.momentum * m_[i] + gradient[i];
      direction[i] = muon.nesterov ? gradient[i] + muon.momentum * m_[i] : m_[i];
    }
    const std::int64_t columns = p_.shape.back(), rows = p_.shape[p_.shape.size() - 2];
    std::vector<std::int64_t> parts = rows_of(options_.model, p_.name, muon.split);
    if (parts.empty()) parts = {rows};
    std::size_t begin = 0;
    while (begin < values_.size())
      for (const std::int64_t some : parts) {
        const std::size_t end = begin + static_cast<std::size_t>(some * columns);
        const Values update =
            orthogonalised({direction.begin() + static_cast<std::ptrdiff_t>(begin),
                            direction.begin() + static_cast<std::ptrdiff_t>(end)},
                           static_cast<std::size_t>(some), static_cast<std::size_t>(columns));
        const auto m = static_cast<double>(some), n = static_cast<double>(columns);
        const double scale = muon.scale == Config::Scale::rms ? 0.2 * std::sqrt(std::max(m, n))
                                                              : std::sqrt(std::max(1.0, m / n));
        for (std::size_t i = begin; i < end; ++i)
          values_[i] -= kRate * muon.lr_factor * (scale * update[i - begin] + decay * values_[i]);
        begin = end;
      }
  }
  const Values& values() const { return values_; }
  const Values& momentum() const { return m_; }

 private:
  const forecast::TrainerOptions& options_;
  layers::Parameter p_;
  Values values_, m_, v_;
};

forecast::TrainerOptions options_of(Dtype storage) {
  forecast::TrainerOptions options = tiny_options("M*-E", storage);
  options.state.optimizer = &layers::kMuon;
  return options;
}

void expect_formula(const forecast::TrainerOptions& options) {
  TinyRun run(options);
  std::map<std::string, PlainRule> rules;
  for (const layers::Parameter& p : run.trainer().plan().model().parameters())
    rules.emplace(p.name, PlainRule(options, p, run.read(p.name)));
  for (int step = 0; step < 5; ++step) {
    run.train(step, kRate);
    for (auto& [name, rule] : rules) {
      rule.step(run.read(layers::gradient_name(name)), run.grad_norm(), step + 1);
      const Values values = run.read(name);
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(values[i], rule.values()[i], 1e-10) << name << "[" << i << "], step " << step;
      if (!is_matrix(name)) continue;
      const Values momentum = run.read("muon_m/" + name);
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(momentum[i], rule.momentum()[i], 1e-12) << name << "[" << i << "]";
    }
  }
}

TEST(muon, five_steps_are_those_of_the_papers) {
  for (const Config::Split split :
       {Config::Split::none, Config::Split::projections, Config::Split::heads})
    for (const Config::Scale scale : {Config::Scale::rms, Config::Scale::aspect}) {
      forecast::TrainerOptions options = options_of(Dtype::fp64);
      options.optimizer.muon.split = split;
      options.optimizer.muon.scale = scale;
      SCOPED_TRACE(
          fmt::format("split {} scale {}", static_cast<int>(split), static_cast<int>(scale)));
      expect_formula(options);
    }
}

TEST(muon, other_numbers_are_those_of_the_deck) {
  forecast::TrainerOptions options = options_of(Dtype::fp64);
  options.optimizer.muon.nesterov = false;
  options.optimizer.muon.momentum = 0.8;
  options.optimizer.muon.lr_factor = 3;
  options.optimizer.clip = 0;
  expect_formula(options);
}

// Matrices have a momentum and no moments, all else the reverse.
TEST(muon, each_parameter_has_the_states_of_its_rule) {
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
    const forecast::TrainerPlan plan(options_of(storage));
    std::set<std::string> expected, found;
    for (const layers::Parameter& p : plan.model().parameters()) {
      if (is_matrix(p.name))
        expected.insert("muon_m/" + p.name);
      else
        expected.merge(std::set<std::string>{"adam_m/" + p.name, "adam_v/" + p.name});
      if (storage == Dtype::bf16) expected.insert("master/" + p.name);
    }
    for (const execution::Bucket& bucket : plan.layout().buckets())
      for (const std::string& name : bucket.tensors)
        if (!bucket.group.empty() &&
            plan.layout().whole(name).lifetime == execution::Lifetime::optimizer_state)
          found.insert(name);
    EXPECT_EQ(found, expected);
  }
}

// In windows, with every state on the host, and with a momentum of bf16.
TEST(muon, homes_of_states_change_no_bit) {
  const auto state = [](std::vector<std::string> names, const layers::StateFormat* format) {
    forecast::TrainerOptions options = options_of(Dtype::bf16);
    options.state.host.names = std::move(names);
    options.state.type = {format};
    options.optimizer.window_elements = 2 * execution::kBucketGrain;
    TinyRun run(options);
    for (int step = 0; step < 3; ++step) run.train(step, kRate);
    std::map<std::string, Values> all;
    for (const layers::Parameter& p : run.trainer().plan().model().parameters()) {
      all[p.name] = run.read(p.name);
      if (is_matrix(p.name)) all["muon_m/" + p.name] = run.read("muon_m/" + p.name);
    }
    return all;
  };
  for (const layers::StateFormat* format : {&layers::kStatesOfSums, &layers::kStatesOfBf16}) {
    const auto resident = state({}, format);
    EXPECT_EQ(state({"muon_m"}, format), resident);
    EXPECT_EQ(state({"master", "muon_m", "adam_m", "adam_v"}, format), resident);
  }
}

TEST(muon, a_bad_step_changes_nothing) {
  TinyRun run(options_of(Dtype::bf16));
  run.train(0, kRate);
  const std::string weight = "layers.2.mlp.fc1.weight";
  const Values before = run.read(weight), momentum = run.read("muon_m/" + weight);
  Values embedding = run.read("embedding.weight");
  embedding.assign(embedding.size(), std::nan(""));
  run.write("embedding.weight", embedding);
  run.train(1, kRate);
  EXPECT_FALSE(run.step_ok());
  EXPECT_EQ(run.read(weight), before);
  EXPECT_EQ(run.read("muon_m/" + weight), momentum);
}

TEST(muon, what_is_frozen_has_no_matrices) {
  forecast::TrainerOptions options = options_of(Dtype::fp64);
  options.optimizer.lr_factors = {"layers.*.mlp.* 0"};
  TinyRun run(options);
  const std::string weight = "layers.2.mlp.fc1.weight";
  const Values before = run.read(weight);
  run.train(0, kRate);
  EXPECT_EQ(run.read(weight), before);
  EXPECT_NE(run.read("layers.1.attn.proj.weight"), before);
}

}  // namespace
}  // namespace stowage::ctest
