#include "run/record/dump.hpp"

#include <vector>

#include "execution/error.hpp"
#include "run/state/whole_tensors.hpp"

namespace stowage::run {

using execution::Dtype;
using execution::Lifetime;
using results::h5::Storage;

Dump::Dump(const parallel::Communicator& world, std::int64_t step, std::string path)
    : world_(world), step_(step), path_(std::move(path)), root_(world.rank() == 0) {
  if (step_ > 0 && root_) part_.emplace(path_, results::FileKind::dump);
}

void Dump::before(Trainer& trainer, const inputs::Data& data) {
  if (root_) {
    file_ = std::make_unique<results::h5::File>(results::h5::File::create(part_->part()));
    file_->set_attribute("schema", std::string(results::kDumpSchema));
    write_inputs(trainer, data);
  }
  write_tensors(trainer, Lifetime::parameter, "parameter/");
}

void Dump::after(Trainer& trainer, const StepReport& report, double weight_decay) {
  write_tensors(trainer, Lifetime::gradient, "");  // their names begin with "gradient/"
  write_tensors(trainer, Lifetime::parameter, "updated/");
  if (!root_) return;
  file_->set_attributes({{"step", report.step},
                         {"loss", report.loss},
                         {"grad_norm", report.grad_norm},
                         {"lr", report.lr},
                         {"weight_decay", weight_decay},
                         {"ranks", static_cast<std::int64_t>(world_.size())}});
  file_->close();
  file_.reset();
  part_->commit();
}

void Dump::write_tensors(Trainer& trainer, Lifetime lifetime, const std::string& group) {
  const WholeTensors tensors(trainer, world_);
  for (const std::string& name : tensors.names()) {
    if (tensors.info(name).lifetime != lifetime) continue;
    const std::vector<std::byte> bytes = tensors.gather(name);
    if (!root_) continue;
    const execution::BufferInfo& buffer = tensors.info(name).buffers[0];
    file_->make_dataset(group + name, buffer.dtype, buffer.shape, Storage::plain)
        .write(bytes.data());
  }
}

void Dump::write_inputs(Trainer& trainer, const inputs::Data& data) {
  const inputs::Loader& loader = *data.train;
  const layers::StepShape& shape = trainer.training(loader.global_documents()).recorded.shape;
  const auto microbatches = static_cast<std::size_t>(loader.all_microbatches());
  const auto n = static_cast<std::size_t>(shape.tokens);
  const auto starts = static_cast<std::size_t>(shape.capacity) + 1;
  std::vector<std::int32_t> tokens(microbatches * n), targets(tokens.size()),
      cu_seqlens(microbatches * starts);
  for (std::size_t m = 0; m < microbatches; ++m)
    (void)loader.fill_any(
        static_cast<std::int64_t>(m),
        {std::span(tokens).subspan(m * n, n), std::span(targets).subspan(m * n, n),
         std::span(cu_seqlens).subspan(m * starts, starts)});
  const auto write = [&](const char* name, const std::vector<std::int32_t>& values,
                         std::int64_t width) {
    file_->make_dataset(name, Dtype::int32, {loader.all_microbatches(), width}, Storage::plain)
        .write(values.data());
  };
  write("inputs/tokens", tokens, shape.tokens);
  write("inputs/targets", targets, shape.tokens);
  write("inputs/cu_seqlens", cu_seqlens, shape.capacity + 1);
}

}  // namespace stowage::run
