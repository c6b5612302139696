#include <algorithm>
#include <cstring>
#include <set>

#include "execution/error.hpp"
#include "results/checkpoint.hpp"
#include "results/format.hpp"
#include "results/h5.hpp"
#include "results/part_file.hpp"
#include "version/version.hpp"

namespace stowage::results {
namespace {

// A scalar cannot be chunked, hence not be checksummed: it is stored as one row.
h5::Shape stored_shape(const TensorSpec& spec) {
  return spec.shape.empty() ? h5::Shape{1} : spec.shape;
}

void save_tensor(h5::Group& tensors, const TensorSource& source, std::vector<std::byte>& buffer) {
  const h5::Shape shape = stored_shape(source.spec);
  h5::Dataset made =
      tensors.make_dataset(source.spec.name, source.spec.dtype, shape, h5::Storage::checked);
  if (source.spec.shape.empty()) made.set_attribute("scalar", true);
  if (source.spec.bytes() == 0) return;
  const std::size_t row_bytes = source.spec.bytes() / static_cast<std::size_t>(shape[0]);
  const std::int64_t step = made.rows_per_chunk();
  for (std::int64_t first = 0; first < shape[0]; first += step) {
    const std::int64_t rows = std::min(step, shape[0] - first);
    buffer.resize(static_cast<std::size_t>(rows) * row_bytes);
    source.read(static_cast<std::size_t>(first) * row_bytes, buffer);
    made.write_rows(first, rows, buffer.data());
  }
}

void check_names(std::span<const TensorSource> tensors) {
  std::set<std::string_view> names;
  for (const auto& tensor : tensors)
    STOWAGE_ASSERT(names.insert(tensor.spec.name).second,
                   "two tensors of a checkpoint have the name {}", tensor.spec.name);
}

}  // namespace

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
  h5::File file = h5::File::create(part.part());
  file.set_attributes({{"schema", std::string(kCheckpointSchema)},
                       {"schema_version", std::string("1.0")},
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
    for (const auto& tensor : tensors) save_tensor(group, tensor, buffer);
  }
  file.close();
  part.commit();
  return static_cast<std::int64_t>(std::filesystem::file_size(path));
}

}  // namespace stowage::results
