#include "results/checkpoint_directory.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <random>
#include <system_error>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "results/part_file.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kSuffix = ".h5";
constexpr std::string_view kPart = ".part";
constexpr std::string_view kSums = ".sums";
constexpr const char* kLock = "lock";
constexpr const char* kLatest = "latest";

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  std::int64_t step = -1;
  const char* first = name.data() + kPrefix.size();
  const char* last = name.data() + name.size() - kSuffix.size();
  if (std::from_chars(first, last, step).ptr != last || step < 0) return std::nullopt;
  return step;
}

/// The step of a file that a dead run may have left: "step_00000020.h5.part" and what lies beside.
bool is_left_over(std::string name) {
  if (name.ends_with(kSums)) name.resize(name.size() - kSums.size());
  return name.ends_with(kPart) && step_of(name.substr(0, name.size() - kPart.size()));
}

/// Refuses what would be replaced by a link to a checkpoint.
void require_link(const fs::path& link, bool of_ours) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(link, error);
  if (!fs::exists(status)) return;
  const bool leads_to_a_step =
      fs::is_symlink(status) && step_of(fs::read_symlink(link, error).filename().string());
  if (of_ours ? leads_to_a_step : fs::is_symlink(status)) return;
  execution::throw_usage(
      "{}: is no link to a checkpoint, and would be replaced by one: move it away (links that "
      "were copied as files may be deleted)",
      link.string());
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(fs::path path)
    : CheckpointDirectory(std::move(path), Keep{}) {}

CheckpointDirectory::CheckpointDirectory(fs::path path, Keep keep)
    : path_(std::move(path)), keep_(keep) {}

fs::path CheckpointDirectory::file_of(std::int64_t step) const {
  return path_ / fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

void CheckpointDirectory::claim() {
  std::error_code ignored;
  made_folder_ = !fs::exists(path_, ignored);
  made_lock_ = !fs::exists(path_ / kLock, ignored);
  require_writable(path_ / "writable", FileKind::checkpoint);
  try {
    lock_ = LockedFile::try_open(path_ / kLock);
  } catch (const std::system_error& error) {
    execution::throw_usage("checkpoint directory {}: its file {} cannot be opened: {}",
                           path_.string(), kLock, error.code().message());
  }
  if (!lock_)
    execution::throw_usage("checkpoint directory {}: another run saves here", path_.string());
  require_link(path_ / kLatest, false);  // it may lead anywhere: `latest()` says where
  const fs::path fresh = path_ / fmt::format("{}{}", kLatest, kPart);
  require_link(fresh, true);
  std::error_code error;
  fs::remove(fresh, error);  // of a run that died before it renamed its link
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    if (!is_left_over(name)) continue;
    execution::print_remark(fmt::format(
        "# warning: {} was left by a run that did not end: it is removed", entry.path().string()));
    fs::remove(entry.path(), error);
  }
}

void CheckpointDirectory::give_back() {
  if (!lock_ || !steps().empty()) return;
  std::error_code ignored;
  if (made_lock_) fs::remove(path_ / kLock, ignored);
  lock_.reset();
  if (made_folder_) fs::remove(path_, ignored);  // if it is empty
}

std::string CheckpointDirectory::mark() const {
  std::random_device random;
  const std::string mark = fmt::format("{:08x}{:08x}\n", random(), random());
  try {
    lock_->write(mark);
  } catch (const std::system_error& error) {
    execution::throw_usage("checkpoint directory {}: its file {} cannot be written: {}",
                           path_.string(), kLock, error.code().message());
  }
  return mark;
}

void CheckpointDirectory::require_mark(const std::string& mark) const {
  std::ifstream file(path_ / kLock);
  std::string found;
  std::getline(file, found);
  if (found + "\n" != mark)
    execution::throw_usage(
        "checkpoint directory {}: is not the one that rank 0 sees; it must be on a file system "
        "that "
        "all ranks share",
        fs::absolute(path_).string());
}

void CheckpointDirectory::require_claimed() const {
  if (!lock_ || lock_->is_at(path_ / kLock)) return;
  throw execution::Error(
      execution::Exit::runtime,
      fmt::format("checkpoint directory {} was removed or replaced during the run",
                  path_.string()));
}

std::vector<std::int64_t> CheckpointDirectory::steps() const {
  std::vector<std::int64_t> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error))
    if (const auto step = step_of(entry.path().filename().string())) found.push_back(*step);
  if (error && error != std::errc::no_such_file_or_directory)
    execution::throw_usage("checkpoint directory {}: {}", path_.string(), error.message());
  std::sort(found.begin(), found.end());
  return found;
}

execution::Error CheckpointDirectory::not_written(std::int64_t step,
                                                  const execution::Error& why) const {
  return {execution::Exit::runtime,
          fmt::format("checkpoint {} is not written, the ones before it stay: {}",
                      file_of(step).string(), why.what())};
}

std::unique_ptr<CheckpointDraft> CheckpointDirectory::begin(
    const CheckpointState& state, std::span<const TensorSpec> tensors) const {
  require_claimed();
  try {
    return std::make_unique<CheckpointDraft>(file_of(state.step), state, tensors);
  } catch (const execution::Error& error) {
    throw not_written(state.step, error);
  }
}

std::int64_t CheckpointDirectory::finish(CheckpointDraft& draft, std::int64_t step,
                                         std::span<const TensorDigest> digests) const {
  require_claimed();
  const std::int64_t bytes = draft.commit(digests);
  replace_link(path_ / kLatest, file_of(step).filename());
  if (keep_.last == 0) return bytes;
  std::vector<std::int64_t> old = steps();
  std::erase(old, 0);  // what the run started from is no checkpoint of the run
  old.erase(std::upper_bound(old.begin(), old.end(), step), old.end());
  const auto kept = std::min(static_cast<std::size_t>(keep_.last), old.size());
  old.resize(old.size() - kept);
  std::erase_if(old, [&](std::int64_t of) { return keep_.every > 0 && of % keep_.every == 0; });
  std::error_code ignored;  // a file that cannot be removed costs space, not the run
  for (const std::int64_t of : old) fs::remove(file_of(of), ignored);
  return bytes;
}

std::int64_t CheckpointDirectory::save(const CheckpointState& state,
                                       std::span<const TensorSource> tensors) const {
  const auto draft = begin(state, specs_of(tensors));
  try {
    return finish(*draft, state.step, write_tensors(*draft, tensors));
  } catch (const execution::Error& error) {
    throw not_written(state.step, error);
  }
}

void CheckpointDirectory::verify_alone(const fs::path& path) { Checkpoint(path).verify(); }

CheckpointDirectory::Found CheckpointDirectory::latest(const Verify& verify) const {
  std::vector<std::int64_t> candidates = steps();
  std::ranges::reverse(candidates);  // the newest first
  Found found;
  std::error_code error;
  const fs::path link = path_ / kLatest;
  if (fs::exists(fs::symlink_status(link, error))) {
    const std::string target = fs::read_symlink(link, error).filename().string();
    const auto step = step_of(target);
    if (!step || std::ranges::find(candidates, *step) == candidates.end())
      found.skipped.push_back(
          fmt::format("{} leads to '{}', which is no checkpoint here", link.string(), target));
    if (step)
      std::ranges::stable_partition(candidates, [&](auto candidate) { return candidate <= *step; });
  }
  for (const std::int64_t step : candidates) {
    const fs::path file = file_of(step);
    try {
      verify(file);
      const std::int64_t holds = Checkpoint(file).state().step;
      if (holds != step) execution::throw_usage("{}: holds step {}", file.string(), holds);
      found.path = file;
      return found;
    } catch (const execution::Error& problem) {
      found.skipped.emplace_back(problem.what());
    }
  }
  return found;
}

}  // namespace stowage::results
