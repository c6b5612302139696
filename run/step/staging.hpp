#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

#include "forecast/plan/trainer_plan.hpp"
#include "inputs/data/loader.hpp"

namespace stowage::run {

/// Fills the pinned slots of a program's next step from a loader's current step: those that its
/// stage of the model reads.
/// @return (query, key) pairs within documents, on this rank
double stage_tokens(const inputs::Loader& loader, execution::Executor& executor,
                    const layers::StepShape& shape, const layers::StackedInputs& inputs);

/// Fills a small floating input, fp32 or fp64.
void stage_values(execution::Executor& executor, execution::Tensor tensor,
                  std::initializer_list<double> values);

/// Elements of fp32 or fp64 as doubles.
std::vector<double> to_values(std::span<const std::byte> bytes, execution::Dtype dtype);
/// An output of fp32 or fp64 elements as doubles; blocks until that step is done.
std::vector<double> read_values(execution::Executor& executor, execution::Tensor tensor, int ago);

}  // namespace stowage::run
