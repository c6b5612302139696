#include "run/record/logits.hpp"

#include "results/h5.hpp"
#include "run/step/staging.hpp"

namespace stowage::run {

using execution::Dtype;
using execution::Tensor;
using results::h5::Storage;

namespace {

void write(results::h5::File& file, const char* name, const std::vector<std::int32_t>& values) {
  file.make_dataset(name, Dtype::int32, {std::ssize(values)}, Storage::plain).write(values.data());
}

void write_inputs(results::h5::File& file, const inputs::Loader& loader,
                  const layers::StepShape& shape) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.tokens)), targets(tokens.size()),
      cu_seqlens(static_cast<std::size_t>(shape.capacity) + 1);
  (void)loader.fill(0, {tokens, targets, cu_seqlens});
  write(file, "tokens", tokens);
  write(file, "targets", targets);
  write(file, "cu_seqlens", cu_seqlens);
}

}  // namespace

void dump_logits(Trainer& trainer, const inputs::Data& data,
                 std::optional<results::PartFile>& part) {
  inputs::Loader& loader = *data.held_out.front().loader;
  loader.seek({loader.position().seed, 0, 0});
  const auto [recorded, executor] = trainer.evaluation(loader.global_documents());
  (void)stage_tokens(loader, executor, recorded.shape, recorded.inputs);
  executor.step();
  const std::span<const std::byte> logits = executor.result(recorded.logits, 0);
  if (!part) return;
  results::h5::File file = results::h5::File::create(part->part());
  file.set_attribute("schema", std::string(results::kDumpSchema));
  write_inputs(file, loader, recorded.shape);
  const execution::BufferInfo& buffer = recorded.program.info(recorded.logits).buffers[0];
  file.make_dataset("logits", buffer.dtype, buffer.shape, Storage::plain).write(logits.data());
  file.close();
  part->commit();
}

}  // namespace stowage::run
