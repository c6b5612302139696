#include "run/export/export_job.hpp"

#include <fmt/core.h>

#include <system_error>
#include <utility>

#include "execution/error.hpp"
#include "forecast/plan/run_section.hpp"
#include "run/state/start_weights.hpp"

namespace stowage::run {

using forecast::CheckpointConfig;

ExportJobs::ExportJobs(const inputs::Deck& deck, std::int64_t first_step, bool writes)
    : interval_(inputs::read(deck, &CheckpointConfig::export_interval)),
      folder_(std::filesystem::path(inputs::read(deck, &CheckpointConfig::directory)) /
              "published"),
      like_(StartWeights::folder_of(inputs::read(deck, &CheckpointConfig::resume))),
      last_(first_step) {
  if (interval_ == 0) return;
  try {
    require_exportable(deck, like_, folder_.parent_path());
  } catch (const execution::Error& error) {
    execution::throw_usage("{}: {}", inputs::cite(deck, &CheckpointConfig::export_interval),
                           error.what());
  }
  std::error_code error;
  if (writes) std::filesystem::create_directories(folder_, error);
  if (error)
    execution::throw_usage("{}: {} cannot be made: {}",
                           inputs::cite(deck, &CheckpointConfig::export_interval), folder_.string(),
                           error.message());
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
  options.output = folder_ / checkpoint.stem();
  options.like = like_;
  options.keeps = true;
  try {
    export_ = std::make_unique<ModelExport>(checkpoint, options);
  } catch (const execution::Error& error) {  // an exit of the run, whatever its own was
    throw execution::Error(
        execution::Exit::runtime,
        fmt::format("checkpoint {} is not published: {}", checkpoint.string(), error.what()));
  }
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
