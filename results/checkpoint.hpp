#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "execution/dtype.hpp"
#include "results/tensor_digest.hpp"
#include "results/value.hpp"

/// The file of a checkpoint: tensors by name, whole, with their global shapes; which tensors says
/// run/checkpoints/checkpointing.hpp. Nothing in the file
/// depends on the layout of ranks, on a plan or on buckets, so any of these may differ on restart.
///
/// The file is HDF5 behind a seal (seal.hpp), which has a digest of every byte: tensors under
/// /tensors (contiguous; bf16 as uint16 with the attribute dtype), the state as attributes of
/// /state, the deck as text.
namespace stowage::results {

inline constexpr std::string_view kCheckpointSchema = "stowage-checkpoint";

/// Name, type and global shape of a tensor; its bytes are in row-major order.
struct TensorSpec {
  std::string name;
  execution::Dtype dtype = execution::Dtype::fp32;
  std::vector<std::int64_t> shape;

  std::size_t bytes() const;
  std::string description() const;  ///< "fp32 (64, 256)"
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// A tensor to save. `read` fills `to` with the bytes [offset, offset + to.size()); it is called
/// with rising offsets, in pieces of some MiB, so a tensor on the device needs no full host copy.
struct TensorSource {
  TensorSpec spec;
  std::function<void(std::size_t offset, std::span<std::byte> to)> read;
};

/// A tensor to load; `write` takes the pieces.
struct TensorTarget {
  TensorSpec spec;
  std::function<void(std::size_t offset, std::span<const std::byte> from)> write;
};

/// Rows of so many bytes that are read or written at once.
std::int64_t rows_of_piece(std::size_t row_bytes);

std::vector<TensorSpec> specs_of(std::span<const TensorSource> tensors);

/// What a checkpoint holds beside its tensors.
struct CheckpointState {
  std::int64_t step = 0;  ///< optimizer steps done
  Fields values;          ///< the loader's position, counters, seeds: integers, doubles, text
  std::string deck;       ///< resolved deck of the run
};

/// The value of a field, with its type. Throws Error(Exit::usage) if it is missing or of another
/// type: then the file is not from this program.
std::int64_t integer_value(const CheckpointState& state, std::string_view name);
std::string text_value(const CheckpointState& state, std::string_view name);

/// Where a checkpoint says the uuid of the run that wrote it, whose result set has the same. Those
/// of before lack it.
inline constexpr std::string_view kRunUuid = "run.uuid";

/// An open checkpoint. Every error is an Error(Exit::usage) that names the file, and the tensor.
class Checkpoint {
 public:
  /// Throws if the file is missing, is truncated, is not a checkpoint of ours or of this format,
  /// or is damaged anywhere but in the tensors. Nothing of it is parsed before that is known.
  explicit Checkpoint(std::filesystem::path path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const;
  const CheckpointState& state() const;
  const std::string& digest() const;               ///< of its seal, which has one of every byte
  const std::vector<TensorSpec>& tensors() const;  ///< sorted by name

  /// Loads all targets. First checks that file and targets are the same set of tensors, with equal
  /// shapes and dtypes (`allow_more`: the file may hold more): nothing is written before that. A
  /// tensor that is damaged is found when all of it was read. Any thread may call it.
  void load(std::span<const TensorTarget> targets, bool allow_more = false) const;

  /// The first of these checks alone.
  void require(std::span<const TensorSpec> wanted, bool allow_more = false) const;

  /// Bytes [offset, offset + to.size()) of a tensor as the file has them, which no digest of a part
  /// can check: verify() has, or some part is all that is wanted. Any thread may call it.
  void read(const std::string& tensor, std::size_t offset, std::span<std::byte> to) const;

  /// Reads every byte of every tensor against its digest.
  void verify() const;
  /// The same by several readers: what the bytes of one of `shares` equal shares add to the digests
  /// of tensors(), in their order; and whether those of all shares add up to what was sealed.
  std::vector<TensorDigest::Sums> sums(int share, int shares, int threads) const;
  void require_sums(std::span<const TensorDigest::Sums> of_all) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stowage::results
