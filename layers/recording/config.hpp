#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "execution/dtype.hpp"
#include "kernels/activation/kind.hpp"
#include "kernels/moe/forced_load.hpp"
#include "kernels/rope/rope_frequencies.hpp"
#include "layers/recording/precision.hpp"

namespace stowage::layers {

/// The model, as plain numbers (design section 4): [model] of a deck (config_section.hpp), whose
/// defaults these are. 0 of a deck stands for what is derived from other keys.
struct ModelConfig {
  std::string pattern;            ///< letters of kinds of layers (kind.hpp), | pipeline cut
  int virtual_stages = 1;         ///< of each rank, where several share out the layers
  std::int64_t width = 128;       ///< D
  std::int64_t vocabulary = 256;  ///< V
  double norm_epsilon = 1e-5;
  bool zero_centred_norms = false;  ///< weights of block, final, query and key norms are about 0
  double init_std = 0.02;
  bool tied_embeddings = false;
  bool tells_stream = false;  ///< training steps tell of the residual stream (kStreamSquares)
  double z_loss_coeff = 0;    ///< on the squared log-sum-exp of the next token's logits

  struct Attention {
    int heads = 4;     ///< H
    int kv_heads = 0;  ///< K
    int head_dim = 0;  ///< P
    bool rope = false;
    kernels::RopeFrequencies frequencies = {};
    bool norms = false;         ///< RMSNorm of each query and key head before the positions
    bool output_gate = false;   ///< sigmoid of a projection, on what the heads give
    double rotary_percent = 1;  ///< part of a head that positions turn, from its first columns on
    /// What ranks that share sequences exchange: keys and values of all tokens, or heads, which
    /// shares causal work evenly. automatic: what is expected to be quicker, or in a model that no
    /// plan is made for heads, where they divide among the ranks (choose_exchange.hpp).
    enum class Exchange { automatic, keys, heads } exchange = Exchange::automatic;
    /// With gathered keys: each rank has queries of an early chunk and of a late one, so that
    /// causal work is even, and not those of its own tokens.
    bool zigzag = false;

    int rotary_dim() const { return static_cast<int>(head_dim * rotary_percent); }
  } attention;

  struct Mamba {
    int heads = 0;       ///< H
    int head_dim = 64;   ///< P
    int groups = 1;      ///< G
    int state = 64;      ///< N
    int chunk = 128;     ///< Q
    int conv_width = 4;  ///< W, 2 to 4
    /// Convolution and scan: two operators; one in forward that saves the rows between, as two do;
    /// one in both directions that saves none.
    enum class Form { separate, fused_forward, fused } form = Form::separate;
    double dt_min = 0;
    double dt_max = std::numeric_limits<double>::infinity();

    std::int64_t inner() const { return std::int64_t{heads} * head_dim; }
    std::int64_t conv_channels() const { return inner() + std::int64_t{2} * groups * state; }
    std::int64_t projection() const { return inner() + conv_channels() + heads; }
  } mamba;

  struct GatedDelta {
    int key_heads = 0;           ///< Hk, of q and of k
    int value_heads = 0;         ///< Hv
    int key_head_dim = 128;      ///< N
    int value_head_dim = 128;    ///< P
    int conv_width = 4;          ///< W, 2 to 4
    bool channel_decay = false;  ///< of each column of a head of k, else of the head
    int decay_rank = 0;          ///< of the projection to decays of columns

    std::int64_t keys() const { return std::int64_t{key_heads} * key_head_dim; }
    std::int64_t values() const { return std::int64_t{value_heads} * value_head_dim; }
    std::int64_t conv_channels() const { return 2 * keys() + values(); }
    /// Logits of betas, and of decays where each head has one.
    std::int64_t gates() const { return std::int64_t{channel_decay ? 1 : 2} * value_heads; }
    std::int64_t decays() const {
      return std::int64_t{value_heads} * (channel_decay ? key_head_dim : 1);
    }
    std::int64_t projection() const { return values() + conv_channels() + gates(); }
  } delta;

  struct Mlp {
    std::int64_t ffn = 0;  ///< F
    kernels::Activation activation = kernels::Activation::squared_relu;
  } mlp;

  struct Moe {
    int experts = 8;              ///< E
    int topk = 2;                 ///< R
    std::int64_t ffn = 0;         ///< F of an expert
    std::int64_t latent = 0;      ///< L, the width that routed experts work in; 0: the model's
    bool latent_norm = false;     ///< RMSNorm of the experts' sum of that width
    std::int64_t shared_ffn = 0;  ///< F of the shared expert; 0: none
    bool shared_gate = false;     ///< whose result the sigmoid of one more logit scales
    bool sigmoid = true;
    bool normalise = true;
    int groups = 1;
    int group_topk = 1;
    double scaling = 1;
    double aux_coeff = 0;
    double z_coeff = 0;
    double bias_rate = 1e-3;
    kernels::ForcedLoad forced_load = kernels::ForcedLoad::none;  ///< benchmarks: experts are drawn
    /// How ranks that share experts exchange rows: each gathers all of them, or rows go once to
    /// each rank that has some of their experts, by slots. automatic: what is expected to be
    /// quicker, or in a model that no plan is made for the former (choose_exchange.hpp).
    enum class Exchange { automatic, gather, slots } exchange = Exchange::automatic;
    /// Tests: expert choices of this many tokens are given in a state, not computed; 0: computed.
    std::int64_t frozen_tokens = 0;
    bool tells_load = false;  ///< training steps leave the load of each expert behind (kRouterLoad)

    /// Of the rows that routed experts get.  @param width D
    std::int64_t expert_width(std::int64_t width) const { return latent > 0 ? latent : width; }
  } moe;

  /// Heads that predict further tokens (layers/model/mtp.hpp).
  struct Mtp {
    int depths = 0;            ///< 0: none
    std::string pattern;       ///< letters of the layers of a block
    bool shared = false;       ///< all depths have one block
    double loss_factor = 0.3;  ///< on the mean of their losses
    bool evaluated = false;    ///< evaluations tell their losses too

    int blocks() const { return shared ? std::min(depths, 1) : depths; }
  } mtp;

  /// Products of all layers but the first and the last ones, which stay as they are: in_proj and
  /// out_proj, qkv and proj, dense MLPs and shared experts.
  struct Products {
    const ProductPrecision* precision = &kProductsOfDtype;
    int first_layers = 2, last_layers = 2;
    execution::Dtype gradients = execution::Dtype::e4m3;  ///< as what they are rounded
  } products;

  /// Letters of all layers, with those of heads of further tokens, and cuts.
  std::string letters() const { return mtp.depths > 0 ? pattern + mtp.pattern : pattern; }
  int layers() const {
    int count = 0;
    for (const char letter : pattern) count += letter != '|';
    return count;
  }
  ProductFormats product_formats(int layer) const {
    const bool inner = layer >= products.first_layers && layer < layers() - products.last_layers;
    return inner ? ProductFormats{products.precision, products.gradients} : ProductFormats{};
  }
};

}  // namespace stowage::layers
