#include "tiny_model.hpp"

#include <algorithm>
#include <cstring>

#include "execution/philox.hpp"
#include "inputs/deck/layer_kinds.hpp"
#include "kernels/digest/digest.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "layers/mixers/kinds.hpp"
#include "layers/mixers/stream_squares.hpp"

namespace stowage::ctest {

using execution::Dtype;
using execution::Tensor;

namespace {

constexpr std::int64_t kTokens = 23;
constexpr std::int64_t kCapacity = 5;
constexpr std::size_t kSumsBytes = 2 * sizeof(std::uint64_t);  ///< of a digest
constexpr std::int32_t kVocabulary = 13;

/// Stages a tensor of one dtype from doubles or integers.
template <class Value>
void stage(execution::Executor& executor, Tensor tensor, const std::vector<Value>& values) {
  const auto slot = executor.stage(tensor);
  std::memcpy(slot.data(), values.data(), values.size() * sizeof(Value));
}

void stage_real(execution::Executor& executor, Tensor tensor, const std::vector<double>& values) {
  if (executor.program().info(tensor).buffers[0].dtype == Dtype::fp64)
    return stage(executor, tensor, values);
  stage(executor, tensor, std::vector<float>(values.begin(), values.end()));
}

std::vector<double> to_doubles(std::span<const std::byte> bytes, Dtype dtype) {
  std::vector<double> values(bytes.size() / execution::size_bytes(dtype));
  execution::with_storage_type(dtype, [&]<class S>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      S value;
      std::memcpy(&value, bytes.data() + i * sizeof(S), sizeof(S));
      values[i] = static_cast<double>(value);
    }
  });
  return values;
}

}  // namespace

Documents draw_documents(std::mt19937_64& random, std::int64_t tokens, int most) {
  const auto draw = [&](std::int64_t least, std::int64_t greatest) {
    return static_cast<std::int32_t>(
        std::uniform_int_distribution<std::int64_t>(least, greatest)(random));
  };
  const std::int32_t end = draw(tokens - tokens / 10, tokens);
  Documents documents{0, end};
  for (std::int32_t more = draw(0, most - 1); more > 0; --more) documents.push_back(draw(0, end));
  std::ranges::sort(documents);
  return documents;
}

std::string every_kind() { return inputs::layer_letters(); }

std::vector<std::string> kind_patterns() {
  std::vector<std::string> patterns;
  for (const char letter : every_kind()) patterns.emplace_back(1, letter);
  patterns.push_back(every_kind());
  return patterns;
}

std::string without_gated_delta(std::string pattern) {
  std::erase(pattern, layers::kinds::gated_delta.letter);
  return pattern;
}

std::vector<std::string> module_names() {
  std::vector<std::string> names;
  for (const inputs::Module& module : inputs::saved_modules())
    if (module.parts.empty()) names.emplace_back(module.name);
  return names;
}

forecast::TrainerOptions tiny_options(const std::string& pattern, Dtype storage) {
  forecast::TrainerOptions options;
  layers::ModelConfig& model = options.model;
  model.pattern = pattern;
  model.width = 12;
  model.vocabulary = kVocabulary;
  model.init_std = 0.3;
  model.attention = {4, 2, 6, true, {100.0}};
  model.mamba = {.heads = 4, .head_dim = 5, .groups = 2, .state = 6, .chunk = 4};
  model.delta = {.key_heads = 1, .value_heads = 2, .key_head_dim = 6, .value_head_dim = 5};
  model.mlp.ffn = 10;
  model.moe = {.experts = 5, .topk = 2, .ffn = 7, .shared_ffn = 6, .scaling = 1.5};
  options.precision.storage = storage;
  options.step.tokens = kTokens;
  options.step.sequence = kTokens;
  options.capacities = std::vector<std::int64_t>(1, kCapacity);
  options.state.bucket_elements = 400;
  return options;
}

void use_gates(forecast::TrainerOptions& options) {
  layers::ModelConfig& model = options.model;
  model.zero_centred_norms = true;
  model.attention.norms = model.attention.output_gate = true;
  model.delta.channel_decay = true;
  model.delta.decay_rank = 3;
  model.attention.rotary_percent = 0.69;  // 4 of 6 columns, 2 of 4, 88 of 128
  model.mlp.activation = kernels::Activation::swiglu;
  model.moe.shared_gate = true;
  model.moe.sigmoid = false;
}

void predict_further(forecast::TrainerOptions& options, bool shared_block,
                     const std::string& pattern) {
  layers::ModelConfig& model = options.model;
  model.moe.latent = 8;
  model.moe.latent_norm = true;
  model.mtp = {.depths = 2, .pattern = pattern, .shared = shared_block, .loss_factor = 0.7};
}

void quantise(forecast::TrainerOptions& options) {
  layers::ModelConfig& model = options.model;
  model.width = 16;
  model.attention = {4, 4, 4, true, {100.0}};
  model.mamba = {.heads = 4, .head_dim = 8, .groups = 2, .state = 7, .chunk = 4};
  model.delta = {.key_heads = 2, .value_heads = 4, .key_head_dim = 6, .value_head_dim = 4};
  model.mlp.ffn = 16;
  model.moe.shared_ffn = 16;
  options.step.tokens = options.step.sequence = 32;
  model.products = {.precision = &layers::kProductsOf8Bits, .first_layers = 0, .last_layers = 0};
}

void condition_norms(forecast::TrainerOptions& options) {
  if (layers::kinds::gated_delta.in(options.model.pattern)) options.model.norm_epsilon = 0.1;
}

void enlarge(forecast::TrainerOptions& options, int head_dim) {
  layers::ModelConfig& model = options.model;
  model.width = 256;
  model.vocabulary = 512;
  model.init_std = 0.05;
  model.attention = {4, 2, head_dim, true, {10000.0}};
  model.mamba = {.heads = 16, .head_dim = 64, .groups = 8, .state = 128, .chunk = 128};
  model.delta = {.key_heads = 4, .value_heads = 8, .key_head_dim = 128, .value_head_dim = 128};
  model.mlp.ffn = 512;
  model.moe = {.experts = 8, .topk = 2, .ffn = 256, .shared_ffn = 256, .scaling = 1.5};
  options.step.tokens = options.step.sequence = 1024;
  options.state.bucket_elements = 1 << 20;
}

TinyRun::TinyRun(forecast::TrainerOptions options, execution::HostOptions host)
    : TinyRun(std::move(options), execution::make_host_backend(host)) {}

TinyRun::TinyRun(forecast::TrainerOptions options, std::unique_ptr<execution::Backend> backend)
    : backend_(std::move(backend)),
      trainer_(std::make_unique<run::Trainer>(std::make_unique<forecast::TrainerPlan>(options),
                                              *backend_)),
      sums_(backend_->allocate(execution::MemoryKind::device, kSumsBytes)),
      sums_on_host_(backend_->allocate(execution::MemoryKind::host, kSumsBytes)) {}

std::int64_t TinyRun::Batch::most_documents() const {
  std::int64_t most = 0;
  for (const Documents& of_one : documents) most = std::max(most, std::ssize(of_one) - 1);
  return most;
}

TinyRun::Batch TinyRun::make_batch(int index, int microbatches, int first_microbatch) const {
  Batch batch;
  const forecast::TrainerOptions& options = trainer_->plan().options();
  for (int m = first_microbatch; m < first_microbatch + microbatches; ++m) {
    const auto stream = static_cast<std::uint64_t>(index * 100 + m);
    const auto draw = [&](std::int64_t i) {
      return static_cast<std::int32_t>(
          execution::random_bits(7, stream, static_cast<std::uint64_t>(i)) %
          static_cast<std::uint64_t>(options.model.vocabulary));
    };
    batch.documents.push_back(documents_[static_cast<std::size_t>(m) % documents_.size()]);
    for (std::int64_t i = 0; i < options.step.tokens; ++i) {
      batch.tokens.push_back(draw(i));
      const bool counts = i % 7 != 3 && i < batch.documents.back().back();
      batch.targets.push_back(counts ? draw(1000 + i) : -1);
      batch.counted += counts;
    }
  }
  return batch;
}

void TinyRun::stage_inputs(execution::Executor& executor, const layers::StackedInputs& inputs,
                           const layers::StepShape& shape, const Batch& batch) {
  if (inputs.tokens) stage(executor, inputs.tokens, batch.tokens);
  if (inputs.targets) stage(executor, inputs.targets, batch.targets);
  if (inputs.sources) {
    std::vector<std::int32_t> sources;
    for (const std::int32_t target : batch.targets) {
      const auto stretch = static_cast<std::int32_t>(sources.size()) % shape.tokens / 5;
      sources.push_back(target < 0 ? -1 : static_cast<std::int32_t>(stretch % shape.sources));
    }
    stage(executor, inputs.sources, sources);
  }
  std::vector<std::int32_t> cu_seqlens;
  for (const Documents& documents : batch.documents) {
    const std::size_t begin = cu_seqlens.size();
    cu_seqlens.insert(cu_seqlens.end(), documents.begin(), documents.end());
    cu_seqlens.resize(begin + static_cast<std::size_t>(shape.capacity) + 1, documents.back());
  }
  stage(executor, inputs.cu_seqlens, cu_seqlens);
}

void TinyRun::train(int index, double lr, Part part, int capacity_class) {
  const int microbatches = trainer_->plan().options().step.microbatches;
  train(make_batch(index, microbatches, part.index * microbatches), lr, part.parts, capacity_class);
}

void TinyRun::train(const Batch& batch, double lr, int parts, int capacity_class) {
  const auto [recorded, executor] = trainer_->training(batch.most_documents(), capacity_class);
  executor_ = &executor;
  recorded_ = &recorded;
  stage_inputs(executor, recorded.inputs, recorded.shape, batch);
  const int counted = batch.step_counted > 0 ? batch.step_counted : batch.counted * parts;
  stage_real(executor, recorded.loss_scale, {1.0 / counted});
  stage_real(executor, recorded.schedule, {lr, 0.1});
  stage(executor, recorded.go_on, std::vector<std::int32_t>{layers::kGoOn});
  const kernels::Attempt attempt;
  if (recorded.attempt)
    stage(executor, recorded.attempt, std::vector<std::int64_t>{attempt.good_steps, attempt.last});
  if (recorded.asked) stage(executor, recorded.asked, std::vector<std::int32_t>{1});
  const std::uint64_t waits = backend_->waits();
  executor.step();
  waits_in_steps_ += backend_->waits() - waits;
}

int TinyRun::train_with_capacity(int index, double lr, Part part) {
  const int last = trainer_->plan().capacity_classes() - 1;
  for (int reruns = 0;; ++reruns) {
    train(index, lr, part, reruns);
    if (reruns == last || expert_rows()[0] == 0) return reruns;
  }
}

std::vector<std::int32_t> TinyRun::expert_rows() {
  const auto bytes = executor_->result(recorded_->expert_rows);
  std::vector<std::int32_t> rows(bytes.size() / sizeof(std::int32_t));
  std::memcpy(rows.data(), bytes.data(), bytes.size());
  return rows;
}

double TinyRun::evaluate(int index, Part part) {
  const int microbatches = trainer_->plan().options().evaluation_microbatches;
  const Batch batch = make_batch(index, microbatches, part.index * microbatches);
  const auto [recorded, executor] = trainer_->evaluation(batch.most_documents());
  stage_inputs(executor, recorded.inputs, recorded.shape, batch);
  executor.step();
  const Dtype dtype = recorded.program.info(recorded.loss).buffers[0].dtype;
  double loss = to_doubles(executor.result(recorded.loss), dtype)[0];
  if (recorded.z_loss) loss += to_doubles(executor.result(recorded.z_loss), dtype)[0];
  return loss;
}

std::vector<double> TinyRun::result(execution::Tensor output) {
  const Dtype dtype = recorded_->program.info(output).buffers[0].dtype;
  return to_doubles(executor_->result(output), dtype);
}

std::vector<double> TinyRun::loss() { return result(recorded_->loss); }

std::vector<double> TinyRun::told() {
  std::vector<double> all = loss();
  for (const execution::Tensor more : {recorded_->z_loss, recorded_->source_losses,
                                       recorded_->program.find(layers::kStreamSquares)})
    if (more)
      for (const double value : result(more)) all.push_back(value);
  return all;
}

std::vector<double> TinyRun::update_squares() {
  return result(recorded_->program.find(layers::kUpdateSquares));
}

std::vector<double> TinyRun::router_losses() { return result(recorded_->router_losses); }

double TinyRun::grad_norm() { return result(recorded_->grad_norm)[0]; }

bool TinyRun::step_ok() {
  std::int32_t ok = 0;
  std::memcpy(&ok, executor_->result(recorded_->step_ok).data(), sizeof(ok));
  return ok != 0;
}

std::vector<double> TinyRun::read(const std::string& tensor) {
  const execution::TensorInfo& info = trainer_->plan().layout().info(tensor);
  std::vector<std::byte> bytes(info.bytes());
  trainer_->device().read(tensor, bytes);
  return to_doubles(bytes, info.buffers[0].dtype);
}

void TinyRun::write(const std::string& tensor, const std::vector<double>& values) {
  const execution::TensorInfo& info = trainer_->plan().layout().info(tensor);
  std::vector<std::byte> bytes(info.bytes());
  execution::with_storage_type(info.buffers[0].dtype, [&]<class S>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const S value = static_cast<S>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(S), &value, sizeof(S));
    }
  });
  trainer_->device().write(tensor, bytes);
}

std::vector<std::byte> TinyRun::state() {
  std::vector<std::byte> all;
  for (const execution::Bucket& bucket : trainer_->plan().layout().buckets())
    for (const std::string& tensor : bucket.tensors) {
      if (!trainer_->plan().layout().has(tensor)) continue;
      std::vector<std::byte> bytes(trainer_->plan().layout().info(tensor).bytes());
      trainer_->device().read(tensor, bytes);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  return all;
}

std::vector<std::byte> TinyRun::digest() {
  execution::Device& device = trainer_->device();
  device.synchronize();
  const execution::TensorInfo two =
      execution::one_buffer("sums", Dtype::int64, {2}, execution::Lifetime::scratch);
  void* const to = sums_->data();
  execution::Queue& queue = device.queue({"compute", execution::Lane::compute});
  kernels::fill(queue, {{&to, 1}, &two}, 0);
  for (const execution::Bucket& bucket : trainer_->plan().layout().buckets())
    for (const std::string& tensor : bucket.tensors) {
      if (!trainer_->plan().layout().has(tensor)) continue;
      void* const from = device.address(trainer_->plan().layout().place(tensor));
      kernels::add_digest(queue, {execution::stream_of(tensor)},
                          {{&from, 1}, &trainer_->plan().layout().info(tensor)}, {{&to, 1}, &two});
    }
  queue.copy(sums_on_host_->data(), to, kSumsBytes);
  queue.synchronize();
  return {sums_on_host_->data(), sums_on_host_->data() + kSumsBytes};
}

void TinyRun::freeze_routing() {
  const std::int64_t used = trainer_->plan().options().model.moe.experts - 1;
  freeze_routing([used](std::int32_t t, std::int32_t r) {
    return static_cast<std::int32_t>((t * 3 + r * 2) % used);
  });
}

void TinyRun::freeze_routing(const Routing& expert) {
  std::int32_t end = 0;
  for (const Documents& documents : documents_) end = std::max(end, documents.back());
  const layers::ModelConfig& model = trainer_->plan().options().model;
  for (const execution::Bucket& bucket : trainer_->plan().layout().buckets())
    for (const std::string& tensor : bucket.tensors) {
      if (!tensor.ends_with(".router.frozen")) continue;
      std::vector<std::int32_t> indices;
      const forecast::TrainerOptions& options = trainer_->plan().options();
      const auto rows = static_cast<std::int32_t>(model.moe.frozen_tokens);
      const std::int32_t first =
          options.sharing.ranks.coordinates[parallel::Axis::tensor] * rows;  // of this rank's
      for (std::int32_t t = first; t < first + rows; ++t)
        for (std::int32_t r = 0; r < model.moe.topk; ++r)
          indices.push_back(t < end ? expert(t, r) : -1);
      trainer_->device().write(tensor, std::as_bytes(std::span(indices)));
    }
}

}  // namespace stowage::ctest
