#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "inputs/deck/deck.hpp"
#include "run/export/model_export.hpp"

namespace stowage::run {

/// Checkpoints of a run that become published folders while training goes on: the first of each
/// `checkpoint.export_interval` steps, `<checkpoint.directory>/published/step_N`. A thread writes
/// one folder at a time, from the checkpoint's file. On rank 0.
class ExportJobs {
 public:
  /// @param first_step steps that were done before the run  @param writes whether this rank does
  /// @throws Error (exit 2) if no model family has the deck's model, or the place cannot be made
  ExportJobs(const inputs::Deck& deck, std::int64_t first_step, bool writes);
  /// Gives up what is not done; nothing of it stays.
  ~ExportJobs();

  /// Begins to export a checkpoint that is whole, if it is due. Waits for the export before.
  void saved(std::int64_t step, const std::filesystem::path& checkpoint);
  /// Waits for what is under way. @throws what went wrong
  void settle();
  /// What was made since the last call, for people. @throws what went wrong
  std::vector<std::string> made();

 private:
  void run();

  std::int64_t interval_;
  std::filesystem::path folder_;  ///< that folders are made in
  std::string like_;
  std::int64_t last_;                    ///< the step of the last export
  std::unique_ptr<ModelExport> export_;  ///< under way
  std::atomic<bool> abandoned_ = false, ended_ = false;
  std::exception_ptr error_;
  std::thread thread_;
  std::vector<std::string> made_;
};

}  // namespace stowage::run
