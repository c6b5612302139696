#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "execution/error.hpp"
#include "results/checkpoint.hpp"
#include "results/checkpoint_draft.hpp"
#include "results/file_lock.hpp"

namespace stowage::results {

/// The checkpoints of one run: `step_00001200.h5` and so on, and a link `latest`.
class CheckpointDirectory {
 public:
  /// What stays when older files are removed after a save.
  struct Keep {
    std::int64_t last = 0;   ///< so many newest files; 0: all
    std::int64_t every = 0;  ///< and those of steps that are multiples of this; 0: none
  };

  explicit CheckpointDirectory(std::filesystem::path path);
  CheckpointDirectory(std::filesystem::path path, Keep keep);

  /// Takes the folder for this process, before step 1: makes it if needed, tries to write, and
  /// locks it, so that no other run saves here. Throws Error(Exit::usage) if that cannot be done,
  /// or if `latest` is no link but something of the user's.
  /// Unfinished checkpoints of dead runs are named on stderr and removed.
  void claim();

  /// Removes what claim() has made, if nothing was saved: the lock, and an empty folder.
  void give_back();

  /// Leaves a mark in the folder, which has been claimed. @return it
  std::string mark() const;
  /// Throws Error(Exit::usage) unless this process finds the mark: it sees another folder than the
  /// process that has claimed it.
  void require_mark(const std::string& mark) const;

  /// A file for `state.step`, for its tensors to be written. Throws Error(Exit::runtime) if that
  /// fails or the folder is no longer the one that was claimed; what was whole stays.
  std::unique_ptr<CheckpointDraft> begin(const CheckpointState& state,
                                         std::span<const TensorSpec> tensors) const;

  /// Commits the file of `step`, then moves `latest`, then removes what is too old. Files of later
  /// steps (the run was resumed from before them) are left alone. Throws Error(Exit::runtime) if
  /// that fails. Any thread may call it, one at a time. @return bytes of the file
  std::int64_t finish(CheckpointDraft& draft, std::int64_t step,
                      std::span<const TensorDigest> digests) const;

  /// The error of a file that is not finished: an exit of the run, whatever the reason's own was.
  execution::Error not_written(std::int64_t step, const execution::Error& why) const;

  /// All of that by one process. @return bytes of the file
  std::int64_t save(const CheckpointState& state, std::span<const TensorSource> tensors) const;

  std::filesystem::path file_of(std::int64_t step) const;

  /// Steps of which there is a file, rising. Throws Error(Exit::usage) if the folder is there but
  /// cannot be read.
  std::vector<std::int64_t> steps() const;

  struct Found {
    std::optional<std::filesystem::path> path;  ///< empty: nothing to resume from
    std::vector<std::string> skipped;           ///< files that came first but are not whole: why
  };

  /// Throws Error(Exit::usage) if a checkpoint is damaged anywhere.
  using Verify = std::function<void(const std::filesystem::path&)>;

  /// The checkpoint to resume from: the target of `latest`, or else the newest before it that is
  /// whole (every byte is checked), or else the newest after it. Without `latest`, the newest of
  /// all. A `latest` that leads nowhere is among what was skipped. Call on one rank.
  Found latest(const Verify& verify = verify_alone) const;
  static void verify_alone(const std::filesystem::path& path);

 private:
  void require_claimed() const;

  std::filesystem::path path_;
  Keep keep_;
  std::optional<LockedFile> lock_;
  bool made_folder_ = false, made_lock_ = false;  ///< by claim()
};

}  // namespace stowage::results
