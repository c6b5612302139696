#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "results/checkpoint_directory.hpp"
#include "results/sums_file.hpp"
#include "run/checkpoints/checkpoint_writer.hpp"

namespace stowage::run {

/// A checkpoint that is being written: a thread on every rank writes what the rank speaks for, that
/// of rank 0 seals when all have said in a file that they are done. It sends no message, so that
/// training may.
class CheckpointJob {
 public:
  struct Task {
    std::int64_t step = 0;
    std::filesystem::path part;         ///< the file under construction
    std::vector<std::int64_t> offsets;  ///< of the tensors in it
    int rank = 0, ranks = 1;
    bool as_it_is = false;  ///< nothing was copied aside: the device must stay idle
  };
  struct Written {
    std::int64_t step = 0;
    std::int64_t bytes = 0;    ///< of the file; on rank 0
    double seconds = 0;        ///< until it had its name
    double stall_s = 0;        ///< that training waited for it
    bool overlapping = false;  ///< it waited for a copy of the state alone, not for the file
  };

  /// @param draft on rank 0
  /// @param writer, directory outlive this
  CheckpointJob(Task task, std::unique_ptr<results::CheckpointDraft> draft,
                CheckpointWriter& writer, const results::CheckpointDirectory& directory);
  /// Gives up what is not done; nothing of it stays.
  ~CheckpointJob();

  bool ended() const { return ended_; }
  void wait();
  /// Waits for the end. @throws what went wrong on this rank
  Written finish();

 private:
  void run();
  std::int64_t seal(std::vector<results::TensorDigest> digests);

  Task task_;
  std::unique_ptr<results::CheckpointDraft> draft_;
  CheckpointWriter& writer_;
  const results::CheckpointDirectory& directory_;
  results::SumsFile sums_;
  std::atomic<bool> abandoned_ = false, ended_ = false;
  std::exception_ptr error_;
  Written written_;
  std::thread thread_;
};

/// Where the ranks of a checkpoint say that they are done.
std::filesystem::path sums_path(const std::filesystem::path& part);

}  // namespace stowage::run
