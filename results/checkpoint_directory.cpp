#include "results/checkpoint_directory.hpp"

#include <algorithm>
#include <charconv>

#include "execution/error.hpp"
#include "results/part_file.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kSuffix = ".h5";

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  std::int64_t step = -1;
  const char* first = name.data() + kPrefix.size();
  const char* last = name.data() + name.size() - kSuffix.size();
  if (std::from_chars(first, last, step).ptr != last || step < 0) return std::nullopt;
  return step;
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(fs::path path, std::int64_t keep_last)
    : path_(std::move(path)), keep_last_(keep_last) {}

fs::path CheckpointDirectory::file_of(std::int64_t step) const {
  return path_ / fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

void CheckpointDirectory::require_writable() const {
  results::require_writable(path_ / "writable", "a checkpoint");
}

std::vector<std::int64_t> CheckpointDirectory::steps() const {
  std::vector<std::int64_t> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error))
    if (const auto step = step_of(entry.path().filename().string())) found.push_back(*step);
  std::sort(found.begin(), found.end());
  return found;
}

std::int64_t CheckpointDirectory::save(const CheckpointState& state,
                                       std::span<const TensorSource> tensors) const {
  const fs::path file = file_of(state.step);
  const std::int64_t bytes = save_checkpoint(file, state, tensors);
  replace_link(path_ / "latest", file.filename());
  if (keep_last_ == 0) return bytes;
  std::vector<std::int64_t> old = steps();
  std::erase(old, 0);  // what the run started from is no checkpoint of the run
  old.erase(std::upper_bound(old.begin(), old.end(), state.step), old.end());
  const auto kept = std::min(static_cast<std::size_t>(keep_last_), old.size());
  old.resize(old.size() - kept);
  std::error_code ignored;  // a file that cannot be removed costs space, not the run
  for (const std::int64_t step : old) fs::remove(file_of(step), ignored);
  return bytes;
}

CheckpointDirectory::Found CheckpointDirectory::latest() const {
  std::vector<std::int64_t> candidates = steps();
  std::error_code error;
  const fs::path target = fs::read_symlink(path_ / "latest", error);
  if (const auto step = error ? std::nullopt : step_of(target.filename().string()))
    candidates.erase(std::upper_bound(candidates.begin(), candidates.end(), *step),
                     candidates.end());
  Found found;
  for (auto step = candidates.rbegin(); step != candidates.rend(); ++step) {
    try {
      Checkpoint(file_of(*step)).verify();
      found.path = file_of(*step);
      return found;
    } catch (const execution::Error& problem) {
      found.skipped.emplace_back(problem.what());
    }
  }
  return found;
}

}  // namespace stowage::results
