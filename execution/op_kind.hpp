#pragma once

#include <string_view>

namespace stowage::execution {

/// "mb0/layers.3.mamba/scan" as "mamba/scan", "all_reduce/gradient/dense/7" as
/// "all_reduce/gradient/dense", "mb0/head/round_sum/output.weight" as "head/round_sum": the part of
/// an op's name without microbatch, layer, number and parameter.
std::string_view op_kind(std::string_view name);

}  // namespace stowage::execution
