#include <gtest/gtest.h>

#include <cmath>

#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

/// Compares the gradient of every parameter with finite differences of the evaluation program,
/// element by element: two programs that share only the forward operators.
void check(forecast::TrainerOptions options) {
  options.model.moe.frozen_tokens = options.step.tokens;
  options.evaluation_microbatches = options.step.microbatches;
  const bool has_z_loss = options.model.z_loss_coeff > 0;
  TinyRun run(std::move(options));
  run.freeze_routing();
  run.train(1, 0.0);
  const double counted = run.loss()[1];
  const double loss = run.loss()[0] + (has_z_loss ? run.told()[2] : 0);
  EXPECT_NEAR(loss, run.evaluate(1), 1e-12 * loss);
  for (const layers::Parameter& parameter : run.trainer().plan().model().parameters()) {
    const std::vector<double> gradient = run.read(layers::gradient_name(parameter.name));
    std::vector<double> values = run.read(parameter.name);
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      // A four-point stencil: truncation h^4, rounding 1e-16 * loss / h; small enough that it
      // rarely straddles a kink of the squared ReLU's derivative.
      const double h = 1e-5;
      const double value = values[i];
      const auto at = [&](double x) {
        values[i] = x;
        run.write(parameter.name, values);
        return run.evaluate(1);
      };
      const double near = at(value + h) - at(value - h);
      const double far = at(value + 2 * h) - at(value - 2 * h);
      values[i] = value;
      const double expected = (8 * near - far) / (12 * h) / counted;
      difference += std::pow(gradient[i] - expected, 2);
      norm += expected * expected;
    }
    run.write(parameter.name, values);
    EXPECT_GT(norm, 0) << parameter.name;
    EXPECT_LT(std::sqrt(difference / norm), 1e-6) << parameter.name << " norm " << std::sqrt(norm);
  }
}

forecast::TrainerOptions fp64(const std::string& pattern) {
  return tiny_options(pattern, execution::Dtype::fp64);
}

TEST(gradients, every_kind) {
  for (const std::string& pattern : kind_patterns()) {
    SCOPED_TRACE(pattern);
    check(fp64(pattern));
  }
}
TEST(gradients, fused_mamba) {
  forecast::TrainerOptions options = fp64("M");
  options.model.mamba.form = layers::ModelConfig::Mamba::Form::fused;
  check(options);
}
TEST(gradients, narrower_convolutions) {
  forecast::TrainerOptions options = fp64("M");
  options.model.mamba.conv_width = 2;
  check(options);
  options.model.mamba.conv_width = 3;
  options.model.mamba.form = layers::ModelConfig::Mamba::Form::fused;
  check(options);
}

TEST(gradients, gated_forms) {
  for (const char* pattern : {"*-", "GE"}) {
    SCOPED_TRACE(pattern);
    forecast::TrainerOptions options = fp64(pattern);
    use_gates(options);
    check(options);
  }
}

TEST(gradients, microbatches) {
  forecast::TrainerOptions options = fp64("ME");
  options.step.microbatches = 4;
  check(options);
}

TEST(gradients, tied_embeddings) {
  forecast::TrainerOptions options = fp64("*-");
  options.model.tied_embeddings = true;
  check(options);
}

TEST(gradients, logits_in_the_memory_of_the_embeddings_gradient) {
  forecast::TrainerOptions options = fp64("-");
  options.model.width = 24;  // (13, 24) fp64 has room for the logits of 23 tokens
  options.model.mlp.ffn = 4;
  check(options);
}

TEST(gradients, z_loss) {
  for (const bool tied : {false, true}) {
    forecast::TrainerOptions options = fp64("-");
    options.model.z_loss_coeff = 0.3;
    options.model.tied_embeddings = tied;
    options.step.microbatches = 3;
    check(options);
  }
}

TEST(gradients, swiglu) {
  forecast::TrainerOptions options = fp64("-E");
  options.model.mlp.activation = kernels::Activation::swiglu;
  check(options);
}

TEST(gradients, softmax_router_without_norm_or_shared_expert) {
  forecast::TrainerOptions options = fp64("E");
  options.model.moe.sigmoid = false;
  options.model.moe.normalise = false;
  options.model.moe.shared_ffn = 0;
  check(options);
}

TEST(gradients, attention_without_positions) {
  forecast::TrainerOptions options = fp64("**");
  options.model.attention.rope = false;
  check(options);
}

}  // namespace
}  // namespace stowage::ctest
