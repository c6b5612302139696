#include "run/export/export_job.hpp"

#include <fmt/core.h>

#include <utility>

#include "forecast/plan/run_section.hpp"
#include "run/state/start_weights.hpp"

namespace stowage::run {

using forecast::CheckpointConfig;

ExportJobs::ExportJobs(const inputs::Deck& deck, std::int64_t first_step)
    : interval_(inputs::read(deck, &CheckpointConfig::export_interval)),
      folder_(inputs::read(deck, &CheckpointConfig::directory)),
      like_(StartWeights::folder_of(inputs::read(deck, &CheckpointConfig::resume))),
      last_(first_step) {
  if (interval_ == 0) return;
  try {
    require_exportable(deck, like_, folder_);
  } catch (const execution::Error& error) {
    execution::throw_usage("{}: {}", inputs::cite(deck, &CheckpointConfig::export_interval),
                           error.what());
  }
}

ExportJobs::~ExportJobs() {
  abandoned_ = true;
  if (thread_.joinable()) thread_.join();
}

void ExportJobs::saved(std::int64_t step, const std::filesystem::path& checkpoint) {
  if (interval_ == 0 || step / interval_ == last_ / interval_) return;
  settle();
  last_ = step;
  ExportOptions options;
  options.output = folder_ / "published" / checkpoint.stem();
  options.like = like_;
  options.replaces = true;
  export_ = std::make_unique<ModelExport>(checkpoint, options);
  ended_ = false;
  thread_ = std::thread([this] { run(); });
}

void ExportJobs::run() {
  try {
    export_->write([](std::int64_t) {}, abandoned_);
  } catch (...) {
    error_ = std::current_exception();
  }
  ended_ = true;
}

void ExportJobs::settle() {
  if (!export_) return;
  thread_.join();
  if (error_) std::rethrow_exception(error_);
  made_.push_back("# published: " + export_->text());
  export_.reset();
}

std::vector<std::string> ExportJobs::made() {
  if (export_ && ended_) settle();
  return std::exchange(made_, {});
}

}  // namespace stowage::run
