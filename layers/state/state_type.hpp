#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "layers/recording/parameters.hpp"

namespace stowage::layers {

/// How the optimizer's states are stored, said once. The values of optim.state_dtype and their
/// help, the layout, memory and checkpoints follow from its row.
struct StateFormat {
  std::string_view name;  ///< in a deck
  std::string_view help;  ///< "moments in bf16"
  /// Of first moments and momentum, and of second moments; none: the type of sums.
  std::optional<execution::Dtype> first, second;
  /// Whether weights that are narrower than sums have a master. Without one, weights and moments
  /// are rounded stochastically: the mean of what is stored is what was computed.
  bool master = true;
};

inline constexpr StateFormat kStatesOfSums{"fp32", "moments in the type of sums", {}, {}};
inline constexpr StateFormat kStatesOfBf16{"bf16", "moments in bf16", execution::Dtype::bf16,
                                           execution::Dtype::bf16};
inline constexpr StateFormat kStatesOf3Bytes{
    "fp8",
    "the first moment in e4m3, scaled by the root of the second, that one in bf16, and no masters: "
    "what is stored is rounded stochastically",
    execution::Dtype::e4m3, execution::Dtype::bf16, false};
/// All of them, the default first.
inline constexpr std::array kStateFormats{&kStatesOfSums, &kStatesOfBf16, &kStatesOf3Bytes};

/// What a deck chooses.
struct StateType {
  const StateFormat* format = &kStatesOfSums;
  /// In which the gradients of microbatches are added up: bf16, or fp32 for the type of sums.
  execution::Dtype gradients = execution::Dtype::fp32;

  /// Of a state, by its place in Optimizer::states.
  execution::Dtype of(std::size_t state, Precision precision) const {
    return (state == 0 ? format->first : format->second).value_or(precision.accumulation());
  }
  execution::Dtype gradient(Precision precision) const {
    return gradients == execution::Dtype::bf16 ? gradients : precision.accumulation();
  }
  bool has_master(Precision precision) const { return format->master && precision.has_master(); }
};

}  // namespace stowage::layers
