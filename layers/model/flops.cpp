#include "layers/model/flops.hpp"

#include "execution/error.hpp"

namespace stowage::layers {
namespace {

constexpr double kChunk = 128;
constexpr double kTraining = 3;  // forward, and two products for each of its products

/// Products of one activated row of an MLP: squared ReLU has two matrices, SwiGLU three.
double matrices(const ModelConfig& model) {
  return model.mlp.activation == kernels::Activation::swiglu ? 3 : 2;
}

double mlp_row(const ModelConfig& model, std::int64_t ffn) {
  return 2 * matrices(model) * static_cast<double>(model.width) * static_cast<double>(ffn);
}

/// Forward of the products of an MoE layer for one token, without the router.
double experts_row(const ModelConfig& model) {
  return model.moe.topk * mlp_row(model, model.moe.ffn) + mlp_row(model, model.moe.shared_ffn);
}

StepFlops attention(const ModelConfig& model, const StepWork& work) {
  const double width = static_cast<double>(model.width);
  const double heads = model.attention.heads, kv_heads = model.attention.kv_heads;
  const double head_dim = model.attention.head_dim;
  const double products = 2 * work.tokens * width * head_dim * (2 * heads + 2 * kv_heads);
  // Megatron counts the square of each length: the causal half cancels the two of multiply-add.
  const double squares = 2 * work.pairs - work.tokens;
  return {products + 4 * heads * work.pairs * head_dim, products + 2 * squares * heads * head_dim};
}

StepFlops mamba(const ModelConfig& model, const StepWork& work) {
  const double width = static_cast<double>(model.width);
  const double heads = model.mamba.heads, head_dim = model.mamba.head_dim;
  const double state = model.mamba.state, groups = model.mamba.groups;
  const auto projections = [&](double inner) {
    return 2 * width * (2 * inner + 2 * groups * state + heads) + 2 * inner * width;
  };
  const double inner = heads * head_dim;
  const double scan =
      heads * (kChunk * head_dim + 4 * state * head_dim) + 2 * groups * kChunk * state;
  const double conv = 2 * model.mamba.conv_width * (inner + 2 * groups * state);
  return {work.tokens * (projections(inner) + scan + conv),
          work.tokens * (projections(2 * width) + 7 * 2 * width * state)};
}

StepFlops layer(const ModelConfig& model, char letter, const StepWork& work) {
  const double width = static_cast<double>(model.width);
  switch (letter) {
    case '*':
      return attention(model, work);
    case 'M':
      return mamba(model, work);
    case '-': {
      const double products = work.tokens * mlp_row(model, model.mlp.ffn);
      return {products, products};
    }
    case 'E': {
      const double products = work.tokens * experts_row(model);
      return {products + 2 * work.tokens * width * model.moe.experts, products};
    }
    case '|':
      return {};
    default:
      execution::throw_usage("model.pattern = \"{}\": the work of a layer '{}' is not known",
                             model.pattern, letter);
  }
}

}  // namespace

StepFlops step_flops(const ModelConfig& model, const StepWork& work) {
  const double head =
      2 * work.tokens * static_cast<double>(model.width) * static_cast<double>(model.vocabulary);
  StepFlops sum{head, head};
  for (const char letter : model.pattern) {
    const StepFlops one = layer(model, letter, work);
    sum.model += one.model;
    sum.megatron_compat += one.megatron_compat;
  }
  return {kTraining * sum.model, kTraining * sum.megatron_compat};
}

}  // namespace stowage::layers
