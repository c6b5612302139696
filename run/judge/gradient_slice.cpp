#include "run/judge/gradient_slice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "execution/error.hpp"
#include "execution/philox.hpp"
#include "forecast/plan/options.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/model/flops.hpp"
#include "run/step/staging.hpp"

namespace stowage::run {
namespace {

using execution::Dtype;

constexpr std::int64_t kTokens = 64;  ///< of a microbatch
constexpr std::int32_t kTail = 2;     ///< tokens behind the last document
constexpr std::int64_t kVocabulary = 256;
constexpr int kMicrobatches = 2;     ///< gradients are stored, then added to
constexpr std::uint64_t kSeed = 17;  ///< of tokens and directions
/// Where the documents of each microbatch start and end.
constexpr std::int32_t kDocuments[kMicrobatches][4] = {{0, 19, 20, kTokens - kTail},
                                                       {0, 33, 50, kTokens - kTail}};
constexpr int kEvaluations = 4;  ///< of the loss for one parameter

/// Each letter of the pattern once, in the order in which they first come.
std::string letters(const std::string& pattern) {
  std::string once;
  for (const char letter : pattern)
    if (letter != '|' && once.find(letter) == std::string::npos) once += letter;
  return once;
}

/// The model with fewer and narrower layers.
layers::ModelConfig narrow(layers::ModelConfig model) {
  model.pattern = letters(model.pattern);
  model.vocabulary = std::min(model.vocabulary, kVocabulary);
  model.width = std::min<std::int64_t>(model.width, 128);
  for (const layers::Kind* kind : layers::all_kinds())
    if (kind->slim) kind->slim(model);
  model.moe.frozen_tokens = kTokens;
  model.products = {};  // what is rounded has no slope
  model.mtp.pattern = letters(model.mtp.pattern);
  model.mtp.evaluated = true;
  return model;
}

forecast::TrainerOptions slice_options(const inputs::Deck& deck, Dtype storage) {
  forecast::TrainerOptions options;
  options.model = narrow(forecast::model_config(deck));
  options.precision.storage = storage;
  options.step = {.tokens = kTokens, .sequence = kTokens, .microbatches = kMicrobatches};
  options.evaluation_microbatches = kMicrobatches;
  options.capacities = {3};
  options.seed = static_cast<std::uint64_t>(inputs::read(deck, &inputs::RunConfig::seed));
  return options;
}

template <class Value>
void stage(execution::Executor& executor, execution::Tensor tensor,
           const std::vector<Value>& values) {
  std::memcpy(executor.stage(tensor).data(), values.data(), values.size() * sizeof(Value));
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// The sum of two unit vectors: the gradient's, if there is one, and a random one.
std::vector<double> direction(const std::string& name, const std::vector<double>& gradient) {
  std::vector<double> random(gradient.size());
  for (std::size_t i = 0; i < random.size(); ++i) {
    const std::uint64_t bits = execution::random_bits(kSeed, execution::stream_of(name), i);
    random[i] = static_cast<double>(bits >> 11) * 0x1p-52 - 1;  // in [-1, 1)
  }
  const double of_random = norm(random), of_gradient = norm(gradient);
  for (std::size_t i = 0; i < random.size(); ++i)
    random[i] = random[i] / of_random + (of_gradient > 0 ? gradient[i] / of_gradient : 0);
  return random;
}

/// Beside the product, by how much the difference may be off: in fp64 what is left of fourth order
/// and of kinks in second derivatives; in fp32 what three operators a layer round in each of four
/// losses, of some hundred terms a sum.
double tolerance_of(Dtype dtype) { return dtype == Dtype::fp64 ? 1e-5 : 1e-2; }

/// How far a step along a direction goes, of the parameter's own norm. Longer in fp32, where the
/// loss must change by far more than its rounding.
double step_of(Dtype dtype) { return dtype == Dtype::fp64 ? 1e-4 : 2e-2; }

double epsilon_of(Dtype dtype) { return dtype == Dtype::fp64 ? 0x1p-52 : 0x1p-23; }

}  // namespace

double GradientSlice::flops(const inputs::Deck& deck) {
  const forecast::TrainerOptions options = slice_options(deck, Dtype::fp32);
  const layers::Model model(options.model, options.precision, 1);
  const double tokens = kTokens * kMicrobatches;
  const double forward = layers::step_flops(options.model, {tokens, tokens * tokens}).model / 3;
  return kEvaluations * static_cast<double>(model.parameters().size()) * forward;
}

Dtype GradientSlice::storage(const execution::Backend& backend) {
  return backend.name() == "host" ? Dtype::fp64 : Dtype::fp32;
}

GradientSlice::GradientSlice(const inputs::Deck& deck, execution::Backend& backend, Dtype storage)
    : trainer_(std::make_unique<forecast::TrainerPlan>(slice_options(deck, storage)), backend) {
  freeze_routing();
}

/// Experts in turn, all of them but the last, as often as there are; rows of the tail go nowhere.
void GradientSlice::freeze_routing() {
  const auto& moe = trainer_.plan().options().model.moe;
  const int used = std::max(moe.experts - 1, moe.topk);
  for (const execution::Bucket& bucket : trainer_.plan().layout().buckets())
    for (const std::string& name : bucket.tensors) {
      if (!name.ends_with(".router.frozen")) continue;
      std::vector<std::int32_t> experts;
      for (std::int32_t t = 0; t < kTokens; ++t)
        for (std::int32_t r = 0; r < moe.topk; ++r)
          experts.push_back(t < kTokens - kTail ? (5 * t + r) % used : -1);
      trainer_.device().write(name, std::as_bytes(std::span(experts)));
    }
}

void GradientSlice::stage_batch(execution::Executor& executor, const layers::StepShape& shape,
                                const layers::StackedInputs& inputs) {
  const auto vocabulary = static_cast<std::uint64_t>(trainer_.plan().options().model.vocabulary);
  std::vector<std::int32_t> tokens, targets, starts;
  for (int m = 0; m < shape.microbatches; ++m) {
    const auto draw = [&](std::int64_t i) {
      return static_cast<std::int32_t>(execution::random_bits(kSeed, static_cast<std::uint64_t>(m),
                                                              static_cast<std::uint64_t>(i)) %
                                       vocabulary);
    };
    for (std::int64_t i = 0; i < shape.tokens; ++i) {
      tokens.push_back(draw(i));
      targets.push_back(i % 7 != 3 && i < shape.tokens - kTail ? draw(1000 + i) : -1);
    }
    starts.insert(starts.end(), std::begin(kDocuments[m]), std::end(kDocuments[m]));
  }
  stage(executor, inputs.tokens, tokens);
  stage(executor, inputs.targets, targets);
  stage(executor, inputs.cu_seqlens, starts);
}

void GradientSlice::backward() {
  const auto [recorded, executor] = trainer_.training(3);
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < kTokens - kTail; ++i) counted += i % 7 != 3;
  targets_ = static_cast<double>(counted * kMicrobatches);
  stage_batch(executor, recorded.shape, recorded.inputs);
  stage_values(executor, recorded.loss_scale, {1 / targets_});
  stage_values(executor, recorded.schedule, {0.0, 0.0});
  stage(executor, recorded.go_on, std::vector<std::int32_t>{layers::kGoOn});
  executor.step();
  const std::vector<double> loss = read_values(executor, recorded.loss, 0);
  STOWAGE_ASSERT(loss[1] == targets_, "the slice counts {} targets, not {}", loss[1], targets_);
  loss_ = loss[0] / targets_;
}

std::vector<double> GradientSlice::read(const std::string& name) {
  execution::Device& device = trainer_.device();
  const execution::TensorInfo& info = device.layout().info(name);
  std::vector<std::byte> bytes(info.bytes());
  device.read(name, bytes);
  std::vector<double> values(static_cast<std::size_t>(info.buffers.front().elements()));
  execution::with_storage_type(info.buffers.front().dtype, [&]<class S>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      S value;
      std::memcpy(&value, bytes.data() + i * sizeof(S), sizeof(S));
      values[i] = static_cast<double>(value);
    }
  });
  return values;
}

void GradientSlice::write(const std::string& name, const std::vector<double>& values) {
  execution::Device& device = trainer_.device();
  const execution::TensorInfo& info = device.layout().info(name);
  std::vector<std::byte> bytes(info.bytes());
  execution::with_storage_type(info.buffers.front().dtype, [&]<class S>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const S value = static_cast<S>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(S), &value, sizeof(S));
    }
  });
  device.write(name, bytes);
}

double GradientSlice::loss() {
  const auto [recorded, executor] = trainer_.evaluation(3);
  stage_batch(executor, recorded.shape, recorded.inputs);
  executor.step();
  double sum = read_values(executor, recorded.loss, 0)[0];
  if (recorded.z_loss) sum += read_values(executor, recorded.z_loss, 0)[0];
  const layers::ModelConfig::Mtp& mtp = trainer_.plan().options().model.mtp;
  for (const execution::Tensor of_depth : recorded.mtp_losses)
    sum += mtp.loss_factor / mtp.depths * read_values(executor, of_depth, 0)[0];
  return sum / targets_;
}

/// |difference - gradient . direction|, over what it may be.
double GradientSlice::error_of(const layers::Parameter& parameter) {
  const Dtype dtype = trainer_.plan().options().precision.storage;
  const std::vector<double> values = read(parameter.name);
  const std::vector<double> gradient = read(layers::gradient_name(parameter.name));
  const std::vector<double> along = direction(parameter.name, gradient);
  if (norm(gradient) == 0) return HUGE_VAL;  // every parameter of a model has one
  double product = 0;
  for (std::size_t i = 0; i < along.size(); ++i) product += gradient[i] * along[i];
  const auto elements = static_cast<double>(values.size());
  const double scale = std::max(norm(values), 1e-2 * std::sqrt(elements));  // zeros move too
  const double h = step_of(dtype) * scale;
  const auto at = [&](double distance) {
    std::vector<double> moved = values;
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += distance * along[i];
    write(parameter.name, moved);
    return loss();
  };
  const double near = at(h) - at(-h), far = at(2 * h) - at(-2 * h);
  write(parameter.name, values);
  const double difference = (8 * near - far) / (12 * h);
  const double rounding = 8 * epsilon_of(dtype) * std::abs(loss_) / h;
  return std::abs(difference - product) / (tolerance_of(dtype) * std::abs(product) + rounding);
}

GradientSlice::Finding GradientSlice::compare() {
  const forecast::TrainerOptions& options = trainer_.plan().options();
  const Dtype dtype = options.precision.storage;
  Finding worst;
  worst.how = fmt::format("{} in {}, tolerance {:g}", options.model.pattern, execution::name(dtype),
                          tolerance_of(dtype));
  for (const layers::Parameter& parameter : trainer_.plan().model().parameters()) {
    const double error = error_of(parameter);
    ++worst.parameters;
    if (error <= worst.error) continue;
    worst.error = error;
    worst.parameter = parameter.name;
    if (std::isnan(error)) break;
  }
  return worst;
}

}  // namespace stowage::run
