#include <fmt/format.h>

#include <algorithm>

#include "execution/error.hpp"
#include "results/checkpoint_draft.hpp"

namespace stowage::results {
namespace {

/// Writes one tensor from its source. @return its digest
TensorDigest save_tensor(const TensorBytes& file, std::int64_t at, const TensorSource& source,
                         std::vector<std::byte>& buffer) {
  const TensorSpec& spec = source.spec;
  TensorDigest digest(spec.name, spec.dtype);
  if (spec.bytes() == 0) return digest;
  const auto rows = spec.shape.empty() ? 1 : spec.shape[0];
  const std::size_t row_bytes = spec.bytes() / static_cast<std::size_t>(rows);
  const auto size = static_cast<std::int64_t>(execution::size_bytes(spec.dtype));
  const std::int64_t step = rows_of_piece(row_bytes);
  for (std::int64_t first = 0; first < rows; first += step) {
    buffer.resize(static_cast<std::size_t>(std::min(step, rows - first)) * row_bytes);
    const std::int64_t offset = first * static_cast<std::int64_t>(row_bytes);
    source.read(static_cast<std::size_t>(offset), buffer);
    digest.add(offset / size, buffer);
    file.write(at + offset, buffer);
  }
  return digest;
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

std::vector<TensorDigest> write_tensors(const CheckpointDraft& draft,
                                        std::span<const TensorSource> tensors) {
  draft.take_room();
  const std::vector<std::int64_t> offsets = draft.offsets();
  const TensorBytes file(draft.part());
  std::vector<std::byte> buffer;
  std::vector<TensorDigest> digests;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    digests.push_back(save_tensor(file, offsets[i], tensors[i], buffer));
  return digests;
}

std::vector<TensorSpec> specs_of(std::span<const TensorSource> tensors) {
  std::vector<TensorSpec> specs;
  for (const TensorSource& tensor : tensors) specs.push_back(tensor.spec);
  return specs;
}

}  // namespace stowage::results
