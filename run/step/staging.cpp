#include "run/step/staging.hpp"

#include <cstring>
#include <vector>

#include "execution/causal_pairs.hpp"
#include "execution/error.hpp"

namespace stowage::run {

using execution::Dtype;
using execution::Tensor;

namespace {

std::span<std::int32_t> integers(std::span<std::byte> slot) {
  return {reinterpret_cast<std::int32_t*>(slot.data()), slot.size() / sizeof(std::int32_t)};
}

/// Pairs of tokens (k <= q) of one document. The tail behind the last one counts in no flops.
double count_pairs(std::span<const std::int32_t> cu_seqlens) {
  const auto pairs = [](double length) { return execution::causal_pairs(length, length); };
  double sum = 0;
  for (std::size_t i = 1; i < cu_seqlens.size(); ++i)
    sum += pairs(static_cast<double>(cu_seqlens[i] - cu_seqlens[i - 1]));
  return sum;
}

Dtype dtype_of(execution::Executor& executor, Tensor tensor) {
  return executor.program().info(tensor).buffers[0].dtype;
}

}  // namespace

double stage_tokens(const inputs::Loader& loader, execution::Executor& executor,
                    const layers::StepShape& shape, const layers::StackedInputs& inputs) {
  const auto n = static_cast<std::size_t>(shape.tokens);
  const auto starts = static_cast<std::size_t>(shape.capacity) + 1;
  std::vector<std::int32_t> unread[2];  // loaded all the same
  const auto slot = [&](Tensor input, std::vector<std::int32_t>& other) {
    if (input) return integers(executor.stage(input));
    other.resize(n * static_cast<std::size_t>(shape.microbatches));
    return std::span(other);
  };
  const std::span<std::int32_t> token_slot = slot(inputs.tokens, unread[0]);
  const std::span<std::int32_t> target_slot = slot(inputs.targets, unread[1]);
  const std::span<std::int32_t> start_slot = integers(executor.stage(inputs.cu_seqlens));
  const std::span<std::int32_t> source_slot =
      inputs.sources ? integers(executor.stage(inputs.sources)) : std::span<std::int32_t>{};
  double pairs = 0;
  for (int m = 0; m < shape.microbatches; ++m) {
    const auto at = static_cast<std::size_t>(m);
    const inputs::Filled filled =
        loader.fill(m, {token_slot.subspan(at * n, n), target_slot.subspan(at * n, n),
                        start_slot.subspan(at * starts, starts),
                        inputs.sources ? source_slot.subspan(at * n, n) : source_slot});
    STOWAGE_ASSERT(filled.documents <= shape.capacity, "a microbatch has {} documents, room is {}",
                   filled.documents, shape.capacity);
    const auto written = start_slot.subspan(at * starts, starts);
    inputs::require_document_starts(written, shape.tokens);
    pairs += count_pairs(written);
  }
  return pairs;
}

void stage_values(execution::Executor& executor, Tensor tensor,
                  std::initializer_list<double> values) {
  const std::span<std::byte> slot = executor.stage(tensor);
  std::size_t at = 0;
  for (const double value : values) {
    if (dtype_of(executor, tensor) == Dtype::fp64) {
      std::memcpy(slot.data() + at, &value, sizeof(value));
      at += sizeof(value);
    } else {
      const auto narrow = static_cast<float>(value);
      std::memcpy(slot.data() + at, &narrow, sizeof(narrow));
      at += sizeof(narrow);
    }
  }
}

std::vector<double> to_values(std::span<const std::byte> bytes, Dtype dtype) {
  std::vector<double> values(bytes.size() / execution::size_bytes(dtype));
  if (dtype == Dtype::fp64) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  STOWAGE_ASSERT(dtype == Dtype::fp32, "values of {}", execution::name(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    values[i] = value;
  }
  return values;
}

std::vector<double> read_values(execution::Executor& executor, Tensor tensor, int ago) {
  return to_values(executor.result(tensor, ago), dtype_of(executor, tensor));
}

}  // namespace stowage::run
