#include <algorithm>
#include <cstring>
#include <set>

#include "execution/error.hpp"
#include "inputs/deck/xxh64.hpp"
#include "results/checkpoint.hpp"
#include "results/format.hpp"
#include "results/h5.hpp"
#include "results/part_file.hpp"
#include "results/seal.hpp"
#include "version/version.hpp"

namespace stowage::results {
namespace {

/// A scalar is stored as one row, so that all tensors are written alike.
h5::Shape stored_shape(const TensorSpec& spec) {
  return spec.shape.empty() ? h5::Shape{1} : spec.shape;
}

/// Writes one tensor; its place and digest go into the seal.
void save_tensor(h5::Group& tensors, const TensorSource& source, std::vector<std::byte>& buffer,
                 Seal& seal) {
  const h5::Shape shape = stored_shape(source.spec);
  h5::Dataset made =
      tensors.make_dataset(source.spec.name, source.spec.dtype, shape, h5::Storage::plain);
  if (source.spec.shape.empty()) made.set_attribute("scalar", true);
  if (source.spec.bytes() == 0) return;
  inputs::Xxh64 hash;
  const std::size_t row_bytes = source.spec.bytes() / static_cast<std::size_t>(shape[0]);
  const std::int64_t step = rows_of_piece(row_bytes);
  for (std::int64_t first = 0; first < shape[0]; first += step) {
    const std::int64_t rows = std::min(step, shape[0] - first);
    buffer.resize(static_cast<std::size_t>(rows) * row_bytes);
    source.read(static_cast<std::size_t>(first) * row_bytes, buffer);
    hash.update(buffer);
    made.write_rows(first, rows, buffer.data());
  }
  seal.tensors.push_back({.name = source.spec.name,
                          .offset = made.file_offset(),
                          .bytes = static_cast<std::int64_t>(source.spec.bytes()),
                          .digest = hash.hex()});
}

void check_names(std::span<const TensorSource> tensors) {
  std::set<std::string_view> names;
  for (const auto& tensor : tensors)
    STOWAGE_ASSERT(names.insert(tensor.spec.name).second,
                   "two tensors of a checkpoint have the name {}", tensor.spec.name);
}

}  // namespace

std::int64_t rows_of_piece(std::size_t row_bytes) {
  constexpr std::size_t kPieceBytes = std::size_t{4} << 20;  // long to stream, short to hold
  return static_cast<std::int64_t>(std::max<std::size_t>(kPieceBytes / row_bytes, 1));
}

std::size_t TensorSpec::bytes() const {
  std::size_t count = execution::size_bytes(dtype);
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

std::string TensorSpec::description() const {
  return fmt::format("{} ({})", execution::name(dtype), fmt::join(shape, ", "));
}

TensorSource from_memory(TensorSpec spec, const void* data) {
  return {std::move(spec), [data](std::size_t offset, std::span<std::byte> to) {
            std::memcpy(to.data(), static_cast<const std::byte*>(data) + offset, to.size());
          }};
}

TensorTarget to_memory(TensorSpec spec, void* data) {
  return {std::move(spec), [data](std::size_t offset, std::span<const std::byte> from) {
            std::memcpy(static_cast<std::byte*>(data) + offset, from.data(), from.size());
          }};
}

std::int64_t save_checkpoint(const std::filesystem::path& path, const CheckpointState& state,
                             std::span<const TensorSource> tensors) {
  check_names(tensors);
  PartFile part(path, FileKind::checkpoint);
  std::vector<std::string> names;
  for (const auto& tensor : tensors) names.push_back(tensor.spec.name);
  Seal seal{.head_bytes = head_bytes_for(names), .tensors = {}};
  h5::File file = h5::File::create(part.part(), seal.head_bytes);
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
    std::vector<std::byte> buffer;
    for (const auto& tensor : tensors) save_tensor(group, tensor, buffer, seal);
  }
  file.close();
  write_seal(part.part(), std::move(seal));
  part.commit();
  return static_cast<std::int64_t>(std::filesystem::file_size(path));
}

}  // namespace stowage::results
