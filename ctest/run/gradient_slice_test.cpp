// Finite differences of a slice of each deck's model: they agree with backward, and tell when it is
// wrong in one parameter, by a factor, in one element, or altogether.
#include "run/judge/gradient_slice.hpp"

#include <gtest/gtest.h>

#include "execution/backend.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::run {
namespace {

using execution::Dtype;

inputs::Deck deck_of(const std::string& file, const std::vector<std::string>& overrides = {}) {
  return inputs::Deck::load(STOWAGE_SOURCE + ("/" + file), overrides);
}

constexpr const char* kDecks[] = {"ctest/drivers/tiny.toml",   "inputs/quickstart.toml",
                                  "inputs/dense-124m.toml",    "inputs/hybrid-dense-1b.toml",
                                  "inputs/hybrid-moe-2b.toml", "inputs/nemotron-nano-30b.toml"};
const std::string kTiny = "ctest/drivers/tiny.toml";

/// What the comparison finds once `spoil` has changed a parameter's gradient.
template <class Spoil>
GradientSlice::Finding after(const inputs::Deck& deck, Dtype dtype, const std::string& parameter,
                             Spoil&& spoil) {
  const auto backend = execution::make_host_backend();
  GradientSlice slice(deck, *backend, dtype);
  slice.backward();
  const std::string name = layers::gradient_name(parameter);
  std::vector<double> gradient = slice.read(name);
  spoil(gradient);
  slice.write(name, gradient);
  return slice.compare();
}

constexpr auto kNothing = [](std::vector<double>&) {};
const std::string kSome = "embedding.weight";

TEST(gradient_slice, agrees_with_every_deck) {
  for (const char* file : kDecks) {
    SCOPED_TRACE(file);
    const auto found = after(deck_of(file), Dtype::fp64, kSome, kNothing);
    EXPECT_LE(found.error, 1) << found.parameter;
    EXPECT_GT(found.error, 0);  // something was compared
    EXPECT_GE(found.parameters, 9);
    std::printf("%s: %g of %d parameters, worst %s\n", file, found.error, found.parameters,
                found.parameter.c_str());
  }
}

TEST(gradient_slice, agrees_with_every_form) {
  for (const char* form : {"model.mamba_mixer=fused", "model.mamba_mixer=fused_forward",
                           "model.activation=swiglu", "model.untie_embeddings=false",
                           "model.moe_score_function=softmax", "model.position_embedding=rope"}) {
    SCOPED_TRACE(form);
    const auto found = after(deck_of(kTiny, {form}), Dtype::fp64, kSome, kNothing);
    EXPECT_LE(found.error, 1) << found.parameter;
  }
}

// Layers of a kind that is there already, of the model or of its further blocks, change nothing.
TEST(gradient_slice, has_a_layer_of_each_kind) {
  const auto flops = [](const char* pattern, const char* further) {
    return GradientSlice::flops(
        deck_of(kTiny, {std::string("model.pattern=") + pattern, "model.mtp_num_layers=1",
                        std::string("model.mtp_pattern=") + further}));
  };
  EXPECT_EQ(flops("M-M-M-*", "*-*-*"), flops("M-*", "*-"));
  EXPECT_GT(flops("M-*", "*-"), flops("M-*", "*"));
}

TEST(gradient_slice, tells_what_is_wrong) {
  const inputs::Deck deck = deck_of(kTiny);
  const auto expect_found = [&](Dtype dtype, const std::string& parameter, auto&& spoil) {
    const auto found = after(deck, dtype, parameter, spoil);
    EXPECT_GT(found.error, 1) << parameter;
    EXPECT_EQ(found.parameter, parameter);
  };
  for (const std::string parameter :
       {"layers.0.mamba.in_proj.weight", "layers.0.mamba.A_log", "layers.1.attn.qkv.weight",
        "layers.3.router.weight", "embedding.weight"}) {
    expect_found(Dtype::fp64, parameter, [](std::vector<double>& gradient) {
      for (double& value : gradient) value *= 1.001;
    });
    expect_found(Dtype::fp64, parameter, [](std::vector<double>& gradient) {
      for (std::size_t i = 0; i < gradient.size() / 2; ++i) gradient[i] = 0;
    });
    expect_found(Dtype::fp64, parameter, [](std::vector<double>& gradient) {
      for (double& value : gradient) value = 0;
    });
  }
  // In fp32 the loss is rounded too coarsely for a sum over a head that hardly changes it.
  for (const std::string parameter : {"layers.0.mamba.in_proj.weight", "layers.1.attn.qkv.weight",
                                      "layers.2.mlp.fc1.weight", "embedding.weight"}) {
    expect_found(Dtype::fp32, parameter, [](std::vector<double>& gradient) {
      for (double& value : gradient) value *= 1.1;
    });
    expect_found(Dtype::fp32, parameter, [](std::vector<double>& gradient) {
      for (double& value : gradient) value = 0;
    });
  }
}

TEST(gradient_slice, agrees_in_fp32) {
  for (const char* file : kDecks) {
    SCOPED_TRACE(file);
    const auto found = after(deck_of(file), Dtype::fp32, kSome, kNothing);
    EXPECT_LE(found.error, 1) << found.parameter;
    std::printf("%s: %g, worst %s\n", file, found.error, found.parameter.c_str());
  }
}

}  // namespace
}  // namespace stowage::run
