#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs/deck/section.hpp"
#include "layers/model/stages.hpp"
#include "layers/recording/config.hpp"
#include "parallel/groups/grid.hpp"
#include "parallel/transport/nccl_options.hpp"

namespace stowage::forecast {

/// [parallel]: the process grid, what its ranks exchange and how.
struct ParallelConfig {
  std::int64_t data = 0;  ///< 0: all ranks that the other axes leave
  int tensor = 1, context = 1;
  layers::ModelConfig::Attention::Exchange context_attention =
      layers::ModelConfig::Attention::Exchange::automatic;
  bool zigzag = false;
  int expert = 1;
  layers::ModelConfig::Moe::Exchange expert_exchange =
      layers::ModelConfig::Moe::Exchange::automatic;
  std::vector<double> expert_capacity = {1.25, 2};
  bool overlap_microbatches = false;
  int pipeline = 1, virtual_stages = 1;
  layers::PipelineSchedule schedule = layers::PipelineSchedule::one_forward_one_backward;
  std::int64_t zero_bubble_bytes = 0;
  int zero = 0;  ///< 1: ZeRO stage 1
  std::int64_t bucket_elements = 4194304;
  bool bf16_gradients = false;
  bool copies = true;
  int sm_margin = 0;
  std::string nccl_algorithm = "Ring", nccl_protocol = "Simple";
  int nccl_channels = 16;
  double patience_s = 600;

  /// Ranks of the axes without data.
  std::int64_t replica() const { return std::int64_t{tensor} * context * expert * pipeline; }
};

void check(const ParallelConfig& grid, const inputs::Deck& deck);

}  // namespace stowage::forecast

namespace stowage::inputs {

template <>
std::vector<Row<forecast::ParallelConfig>> rows<forecast::ParallelConfig>();

}  // namespace stowage::inputs
