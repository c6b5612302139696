#include "run/checkpoints/checkpoint_job.hpp"

#include <chrono>

#include "execution/error.hpp"
#include "results/progress.hpp"

namespace stowage::run {

using results::TensorDigest;

namespace {

constexpr std::chrono::milliseconds kLook{20};  // between looks at what others say

}  // namespace

std::filesystem::path sums_path(const std::filesystem::path& part) {
  return part.string() + ".sums";
}

CheckpointJob::CheckpointJob(Task task, std::unique_ptr<results::CheckpointDraft> draft,
                             CheckpointWriter& writer,
                             const results::CheckpointDirectory& directory)
    : task_(std::move(task)),
      draft_(std::move(draft)),
      writer_(writer),
      directory_(directory),
      sums_(sums_path(task_.part), task_.offsets.size()),
      thread_([this] { run(); }) {}

CheckpointJob::~CheckpointJob() {
  abandoned_ = true;
  wait();
}

void CheckpointJob::run() {
  const double begin_s = results::steady_seconds();
  try {
    if (draft_) draft_->take_room();
    const results::TensorBytes file(task_.part);
    std::vector<TensorDigest> digests =
        writer_.write(file, task_.offsets, task_.as_it_is, abandoned_);
    if (!abandoned_ && task_.rank != 0) sums_.done(task_.rank, digests);
    if (!abandoned_ && task_.rank == 0) written_.bytes = seal(std::move(digests));
  } catch (const execution::Error& error) {
    error_ = std::make_exception_ptr(directory_.not_written(task_.step, error));
    try {
      if (task_.rank != 0) sums_.failed(task_.rank, error.what());
    } catch (const execution::Error&) {  // then this rank's own error ends the run
    }
  }
  if (draft_) {  // without its seal it is removed
    std::error_code ignored;
    std::filesystem::remove(sums_path(task_.part), ignored);
    draft_.reset();
  }
  written_.step = task_.step;
  written_.seconds = results::steady_seconds() - begin_s;
  ended_ = true;
}

/// Adds up what all ranks have found. @return bytes of the file; 0: abandoned
std::int64_t CheckpointJob::seal(std::vector<TensorDigest> digests) {
  for (int rank = 1; rank < task_.ranks; ++rank) {
    auto others = sums_.of(rank);
    for (; !others && !abandoned_; others = sums_.of(rank)) std::this_thread::sleep_for(kLook);
    if (!others) return 0;
    for (std::size_t i = 0; i < digests.size(); ++i) digests[i].add((*others)[i]);
  }
  return directory_.finish(*draft_, task_.step, digests);
}

void CheckpointJob::wait() {
  if (thread_.joinable()) thread_.join();
}

CheckpointJob::Written CheckpointJob::finish() {
  wait();
  if (error_) std::rethrow_exception(error_);
  return written_;
}

}  // namespace stowage::run
