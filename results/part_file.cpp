#include "results/part_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "execution/error.hpp"

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

void create_empty(const fs::path& path, const fs::path& shown, std::string_view what) {
  std::error_code error;
  if (fs::is_directory(shown, error))
    execution::throw_usage("{} cannot be written to {}: it is a folder", what, shown.string());
  fs::create_directories(folder_of(path), error);
  if (error)
    execution::throw_usage("{} cannot be written to {}: folder {}: {}", what, shown.string(),
                           folder_of(path).string(), error.message());
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    execution::throw_usage("{} cannot be written to {}: {}", what, shown.string(),
                           std::strerror(errno));
  ::close(descriptor);
}

}  // namespace

PartFile::PartFile(fs::path final_path, std::string_view what)
    : final_(std::move(final_path)), part_(final_.string() + ".part") {
  create_empty(part_, final_, what);
}

PartFile::~PartFile() {
  std::error_code ignored;
  if (owned_) fs::remove(part_, ignored);
}

void PartFile::commit() {
  sync(part_, O_RDONLY);
  if (::rename(part_.c_str(), final_.c_str()) != 0) throw_system("rename", part_, errno);
  owned_ = false;
  sync(folder_of(final_), O_RDONLY | O_DIRECTORY);
}

void require_writable(const fs::path& path, std::string_view what) { PartFile probe(path, what); }

void replace_link(const fs::path& link, const fs::path& target) {
  const fs::path fresh = link.string() + ".part";
  std::error_code ignored;
  fs::remove(fresh, ignored);
  if (::symlink(target.c_str(), fresh.c_str()) != 0) throw_system("symlink", fresh, errno);
  if (::rename(fresh.c_str(), link.c_str()) != 0) throw_system("rename", fresh, errno);
}

}  // namespace stowage::results
