#include "results/checkpoint_draft.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "execution/error.hpp"
#include "results/format.hpp"
#include "results/h5.hpp"
#include "version/version.hpp"

namespace stowage::results {
namespace {

[[noreturn]] void fail(std::string_view call, const std::filesystem::path& path) {
  throw execution::Error(
      execution::Exit::runtime,
      fmt::format("{} of {} failed: {}", call, path.string(), std::strerror(errno)));
}

/// A scalar is stored as one row.
h5::Shape stored_shape(const TensorSpec& spec) {
  return spec.shape.empty() ? h5::Shape{1} : spec.shape;
}

std::vector<std::string> names_of(std::span<const TensorSpec> tensors) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  const std::set<std::string_view> all(names.begin(), names.end());
  STOWAGE_ASSERT(all.size() == names.size(), "two of {} tensors of a checkpoint have one name",
                 names.size());
  return names;
}

}  // namespace

CheckpointDraft::CheckpointDraft(std::filesystem::path path, const CheckpointState& state,
                                 std::span<const TensorSpec> tensors)
    : part_(std::move(path), FileKind::checkpoint), head_bytes_(head_bytes_for(names_of(tensors))) {
  h5::File file = h5::File::create(part(), head_bytes_);
  file.set_attributes({{"schema", std::string(kCheckpointSchema)},
                       {"schema_version", std::string(kCheckpointFormat)},
                       {"created", utc_now()},
                       {"software", std::string("stowage")},
                       {"git_describe", std::string(version::build_info().git_describe)},
                       {"step", state.step},
                       {"tensors", static_cast<std::int64_t>(tensors.size())}});
  file.make_group("state").set_attributes(state.values);
  file.write_text("deck", state.deck);
  {
    h5::Group group = file.make_group("tensors");
    for (const TensorSpec& spec : tensors) {
      h5::Dataset made =
          group.make_dataset(spec.name, spec.dtype, stored_shape(spec), h5::Storage::placed);
      if (spec.shape.empty()) made.set_attribute("scalar", true);
      const auto bytes = static_cast<std::int64_t>(spec.bytes());
      tensors_.push_back({spec.name, bytes > 0 ? made.file_offset() : head_bytes_, bytes, {}});
    }
  }
  file.close();
}

void CheckpointDraft::take_room() const {
  const int descriptor = ::open(part().c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail("open", part());
  const auto bytes = static_cast<off_t>(std::filesystem::file_size(part()));
  const int failed = ::fallocate(descriptor, 0, 0, bytes) != 0 ? errno : 0;
  ::close(descriptor);
  errno = failed;
  if (failed != 0 && failed != EOPNOTSUPP && failed != ENOSYS) fail("writing", part());
}

std::vector<std::int64_t> CheckpointDraft::offsets() const {
  std::vector<std::int64_t> all;
  for (const SealedTensor& tensor : tensors_) all.push_back(tensor.offset);
  return all;
}

std::int64_t CheckpointDraft::commit(std::span<const TensorDigest> digests) {
  STOWAGE_ASSERT(digests.size() == tensors_.size(), "{} digests of {} tensors", digests.size(),
                 tensors_.size());
  Seal seal{.head_bytes = head_bytes_, .tensors = {}};
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].bytes == 0) continue;
    seal.tensors.push_back(tensors_[i]);
    seal.tensors.back().digest = digests[i].text();
  }
  write_seal(part(), std::move(seal));
  part_.commit();
  return static_cast<std::int64_t>(std::filesystem::file_size(part_.final_path()));
}

TensorBytes::TensorBytes(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail("open", path_);
}

TensorBytes::~TensorBytes() { ::close(descriptor_); }

void TensorBytes::write(std::int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("writing", path_);
    offset += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void TensorBytes::sync() const {
  if (::fsync(descriptor_) != 0) fail("fsync", path_);
}

}  // namespace stowage::results
