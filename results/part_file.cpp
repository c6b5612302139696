#include "results/part_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "results/output_path.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_system(std::string_view call, const fs::path& path, int code) {
  throw execution::Error(execution::Exit::runtime, fmt::format("{} of {} failed: {}", call,
                                                               path.string(), std::strerror(code)));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

void sync(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) throw_system("open", path, errno);
  const int failed = ::fsync(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  // Some network file systems cannot sync a folder and say EINVAL: the rename is still atomic.
  if (failed != 0 && failed != EINVAL) throw_system("fsync", path, failed);
}

[[noreturn]] void refuse(FileKind kind, const fs::path& shown, std::string_view why) {
  execution::throw_usage("{} cannot be written to {}: {}", name(kind), shown.string(), why);
}

void make_folder(const fs::path& shown, FileKind kind) {
  std::error_code error;
  fs::create_directories(folder_of(shown), error);
  if (error)
    refuse(kind, shown, fmt::format("folder {}: {}", folder_of(shown).string(), error.message()));
}

}  // namespace

PartFile::PartFile(fs::path final_path, FileKind kind)
    : final_(std::move(final_path)), part_(part_of(final_)), kind_(kind) {
  require_free(final_, kind_);
  make_folder(final_, kind_);
  take();
  clear_left_over();
}

void PartFile::take() {
  try {
    lock_ = LockedFile::try_open(part_);
  } catch (const std::system_error& error) {
    refuse(kind_, final_, error.code().message());
  }
  if (!lock_) refuse(kind_, final_, fmt::format("another run is writing {}", part_.string()));
}

void PartFile::clear_left_over() {
  std::error_code error;
  if (!fs::is_regular_file(part_, error))
    refuse(kind_, final_, fmt::format("{} is not a file", part_.string()));
  if (fs::file_size(part_, error) == 0) return;
  if (!may_be_unfinished(part_, kind_))
    refuse(kind_, final_, fmt::format("{} exists and is not of ours", part_.string()));
  // The series of a run that failed are worth something; half a checkpoint is not.
  if (kind_ == FileKind::result_set && kind_of(part_) == kind_) {
    const fs::path older = keep_older(part_);
    execution::print_remark(
        fmt::format("# warning: {} was left by a run that did not end: kept as {}", part_.string(),
                    older.string()));
    lock_.reset();
    return take();
  }
  execution::print_remark(fmt::format(
      "# warning: {} was left by a run that did not end: it is replaced", part_.string()));
  if (::ftruncate(lock_->descriptor(), 0) != 0) throw_system("ftruncate", part_, errno);
}

PartFile::~PartFile() {
  std::error_code ignored;
  if (lock_ && owned_) fs::remove(part_, ignored);
}

fs::path PartFile::commit() {
  sync(part_, O_RDONLY);
  fs::path older = kind_ == FileKind::checkpoint ? fs::path() : keep_older(final_);
  if (::rename(part_.c_str(), final_.c_str()) != 0) throw_system("rename", part_, errno);
  owned_ = false;
  sync(folder_of(final_), O_RDONLY | O_DIRECTORY);
  return older;
}

void require_writable(const fs::path& path, FileKind kind) { PartFile probe(path, kind); }

void replace_link(const fs::path& link, const fs::path& target) {
  const fs::path fresh = part_of(link);
  if (::symlink(target.c_str(), fresh.c_str()) != 0) throw_system("symlink", fresh, errno);
  if (::rename(fresh.c_str(), link.c_str()) != 0) throw_system("rename", fresh, errno);
}

}  // namespace stowage::results
