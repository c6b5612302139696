#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "execution/error.hpp"
#include "results/checkpoint.hpp"
#include "results/file_threads.hpp"
#include "results/h5.hpp"
#include "results/seal.hpp"
#include "results/tensor_digest.hpp"

namespace stowage::results {

using execution::throw_usage;

struct Checkpoint::State {
  explicit State(std::filesystem::path from)
      : path(std::move(from)),
        seal(read_seal(path)),
        file(h5::File::open(path, kCheckpointSchema)),
        bytes(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { ::close(bytes); }

  // Reads one tensor piece by piece into `piece`, and checks its digest at the end.
  template <class F>
  void read(const TensorSpec& spec, F&& piece) const;
  // Bytes of a tensor as the file has them. HDF5 is not asked: it serves one thread alone.
  void read_bytes(const std::string& tensor, std::size_t offset, std::span<std::byte> to) const;
  // Throws if a tensor's digest is not the one that was sealed.
  void require_digest(const TensorSpec& spec, const TensorDigest& digest) const;

  std::filesystem::path path;
  Seal seal;  // read first: HDF5 is to see no damaged file
  h5::File file;
  int bytes;  // the same file
  CheckpointState state;
  std::vector<TensorSpec> tensors;
};

namespace {

constexpr std::size_t kVerifiedBytes = std::size_t{2} << 20;  // read at once, within a cache

template <class T>
T typed_value(const CheckpointState& state, std::string_view name, std::string_view type) {
  for (const auto& field : state.values) {
    if (field.name != name) continue;
    if (const T* value = std::get_if<T>(&field.value)) return *value;
    throw_usage("the checkpoint's state '{}' is not {}", name, type);
  }
  throw_usage("the checkpoint has no state '{}'", name);
}

/// Where the shares before `share` end, of so many bytes.
std::size_t share_of(std::size_t bytes, int share, int shares) {
  const auto s = static_cast<std::size_t>(share), all = static_cast<std::size_t>(shares);
  return bytes / all * s + bytes % all * s / all;
}

std::vector<TensorSpec> read_specs(const h5::File& file) {
  std::vector<TensorSpec> specs;
  const h5::Group tensors = file.group("tensors");
  for (const auto& name : tensors.datasets()) {
    const h5::Dataset dataset = tensors.dataset(name);
    specs.push_back({name, dataset.dtype(), dataset.shape()});
    if (dataset.attribute("scalar")) specs.back().shape.clear();
  }
  return specs;
}

}  // namespace

std::int64_t integer_value(const CheckpointState& state, std::string_view name) {
  return typed_value<std::int64_t>(state, name, "an integer");
}

std::string text_value(const CheckpointState& state, std::string_view name) {
  return typed_value<std::string>(state, name, "text");
}

Checkpoint::Checkpoint(std::filesystem::path path)
    : state_(std::make_unique<State>(std::move(path))) {
  const h5::File& file = state_->file;
  try {
    const auto integer = [&](const char* name) {
      const auto value = file.attribute(name);
      if (!value || !std::holds_alternative<std::int64_t>(*value))
        throw_usage("the root attribute {} is missing", name);
      return std::get<std::int64_t>(*value);
    };
    state_->state = {integer("step"), file.group("state").attributes(), file.read_text("deck")};
    state_->tensors = read_specs(file);
    if (static_cast<std::int64_t>(state_->tensors.size()) != integer("tensors"))
      throw_usage("it says that it holds {} tensors, but has {}", integer("tensors"),
                  state_->tensors.size());
  } catch (const execution::Error& error) {
    throw_usage("{}: the checkpoint is damaged: {}", state_->path.string(), error.what());
  }
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

const std::filesystem::path& Checkpoint::path() const { return state_->path; }
const CheckpointState& Checkpoint::state() const { return state_->state; }
const std::string& Checkpoint::digest() const { return state_->seal.digest; }
const std::vector<TensorSpec>& Checkpoint::tensors() const { return state_->tensors; }

template <class F>
void Checkpoint::State::read(const TensorSpec& spec, F&& piece) const {
  if (spec.bytes() == 0) return;
  const std::int64_t rows = spec.shape.empty() ? 1 : spec.shape[0];
  const std::size_t row_bytes = spec.bytes() / static_cast<std::size_t>(rows);
  const std::int64_t step = rows_of_piece(row_bytes);
  std::vector<std::byte> buffer;
  TensorDigest digest(spec.name, spec.dtype);
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    buffer.resize(static_cast<std::size_t>(count) * row_bytes);
    read_bytes(spec.name, static_cast<std::size_t>(first) * row_bytes, buffer);
    digest.add(first * static_cast<std::int64_t>(row_bytes / execution::size_bytes(spec.dtype)),
               buffer);
    piece(static_cast<std::size_t>(first) * row_bytes, std::span<const std::byte>(buffer));
  }
  require_digest(spec, digest);
}

void Checkpoint::State::read_bytes(const std::string& tensor, std::size_t offset,
                                   std::span<std::byte> to) const {
  const auto sealed = std::ranges::find(seal.tensors, tensor, &SealedTensor::name);
  if (sealed == seal.tensors.end() || offset + to.size() > static_cast<std::size_t>(sealed->bytes))
    throw_usage("{}: tensor '{}' is damaged: its bytes {} to {} are not sealed", path.string(),
                tensor, offset, offset + to.size());
  std::int64_t at = sealed->offset + static_cast<std::int64_t>(offset);
  while (!to.empty()) {
    const ssize_t count = ::pread(bytes, to.data(), to.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw_usage("{}: tensor '{}' cannot be read", path.string(), tensor);
    at += count;
    to = to.subspan(static_cast<std::size_t>(count));
  }
}

void Checkpoint::State::require_digest(const TensorSpec& spec, const TensorDigest& digest) const {
  const auto sealed = std::ranges::find(seal.tensors, spec.name, &SealedTensor::name);
  if (sealed == seal.tensors.end() || sealed->digest != digest.text())
    throw_usage("{}: tensor '{}' is damaged: its bytes have the digest {}, sealed was {}",
                path.string(), spec.name, digest.text(),
                sealed == seal.tensors.end() ? "none" : sealed->digest);
}

void Checkpoint::require(std::span<const TensorSpec> wanted, bool allow_more) const {
  const std::string file = path().string();
  std::map<std::string_view, const TensorSpec*> held;
  for (const auto& spec : tensors()) held.emplace(spec.name, &spec);
  for (const TensorSpec& want : wanted) {
    const auto found = held.find(want.name);
    if (found == held.end())
      throw_usage("{}: has no tensor '{}', wanted {} (it holds {} tensors, the model has {})", file,
                  want.name, want.description(), tensors().size(), wanted.size());
    if (*found->second != want)
      throw_usage("{}: tensor '{}' is {}, the model wants {}", file, want.name,
                  found->second->description(), want.description());
    held.erase(found);
  }
  if (!held.empty() && !allow_more)
    throw_usage("{}: holds tensor '{}' {}, which the model does not have ({} such tensors)", file,
                held.begin()->first, held.begin()->second->description(), held.size());
}

void Checkpoint::load(std::span<const TensorTarget> targets, bool allow_more) const {
  std::vector<TensorSpec> wanted;
  for (const TensorTarget& target : targets) wanted.push_back(target.spec);
  require(wanted, allow_more);
  for (const auto& target : targets) state_->read(target.spec, target.write);
}

void Checkpoint::read(const std::string& tensor, std::size_t offset,
                      std::span<std::byte> to) const {
  state_->read_bytes(tensor, offset, to);
}

void Checkpoint::verify() const {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  require_sums(sums(0, 1, file_threads(cores)));
}

std::vector<TensorDigest::Sums> Checkpoint::sums(int share, int shares, int threads) const {
  std::size_t total = 0, before = 0;
  for (const TensorSpec& spec : tensors()) total += spec.bytes();
  const std::size_t begin = share_of(total, share, shares);
  const std::size_t end = share_of(total, share + 1, shares);
  struct Piece {
    std::size_t tensor, first, count;  // elements
  };
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tensors().size(); ++i) {
    const TensorSpec& spec = tensors()[i];
    const std::size_t size = execution::size_bytes(spec.dtype);
    // An element is in the share in which it begins.
    const auto elements_before = [&](std::size_t at) {
      return at <= before ? 0 : (std::min(at - before, spec.bytes()) + size - 1) / size;
    };
    const std::size_t last = elements_before(end);
    for (std::size_t first = elements_before(begin); first < last; first += pieces.back().count)
      pieces.push_back({i, first, std::min(kVerifiedBytes / size, last - first)});
    before += spec.bytes();
  }
  std::vector<TensorDigest> all;
  for (const TensorSpec& spec : tensors()) all.emplace_back(spec.name, spec.dtype);
  std::mutex of_all;
  Turns turns(pieces.size());
  on_threads(threads, turns, [&](int) {
    std::vector<std::byte> bytes;
    while (const std::optional<std::size_t> turn = turns.next()) {
      const auto& [tensor, first, count] = pieces[*turn];
      const TensorSpec& spec = tensors()[tensor];
      const std::size_t size = execution::size_bytes(spec.dtype);
      bytes.resize(count * size);
      read(spec.name, first * size, bytes);
      TensorDigest digest(spec.name, spec.dtype);
      digest.add(static_cast<std::int64_t>(first), bytes);
      const std::lock_guard lock(of_all);
      all[tensor].add(digest.sums());
    }
  });
  std::vector<TensorDigest::Sums> sums;
  for (const TensorDigest& digest : all) sums.push_back(digest.sums());
  return sums;
}

void Checkpoint::require_sums(std::span<const TensorDigest::Sums> of_all) const {
  STOWAGE_ASSERT(of_all.size() == tensors().size(), "{} sums of {} tensors", of_all.size(),
                 tensors().size());
  for (std::size_t i = 0; i < of_all.size(); ++i) {
    const TensorSpec& spec = tensors()[i];
    if (spec.bytes() == 0) continue;
    TensorDigest digest(spec.name, spec.dtype);
    digest.add(of_all[i]);
    state_->require_digest(spec, digest);
  }
}

}  // namespace stowage::results
