#include <algorithm>
#include <fstream>
#include <map>

#include "execution/error.hpp"
#include "results/checkpoint.hpp"
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
        bytes(path, std::ios::binary) {}

  // Reads one tensor piece by piece into `piece`, and checks its digest at the end.
  template <class F>
  void read(const TensorSpec& spec, F&& piece) const;

  std::filesystem::path path;
  Seal seal;  // read first: HDF5 is to see no damaged file
  h5::File file;
  std::ifstream bytes;  // the same file
  CheckpointState state;
  std::vector<TensorSpec> tensors;
};

namespace {

template <class T>
T typed_value(const CheckpointState& state, std::string_view name, std::string_view type) {
  for (const auto& field : state.values) {
    if (field.name != name) continue;
    if (const T* value = std::get_if<T>(&field.value)) return *value;
    throw_usage("the checkpoint's state '{}' is not {}", name, type);
  }
  throw_usage("the checkpoint has no state '{}'", name);
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

double real_value(const CheckpointState& state, std::string_view name) {
  return typed_value<double>(state, name, "a real number");
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
const std::vector<TensorSpec>& Checkpoint::tensors() const { return state_->tensors; }

template <class F>
void Checkpoint::State::read(const TensorSpec& spec, F&& piece) const {
  if (spec.bytes() == 0) return;
  const h5::Dataset dataset = file.dataset("tensors/" + spec.name);
  const auto sealed = std::ranges::find(seal.tensors, spec.name, &SealedTensor::name);
  const std::int64_t rows = spec.shape.empty() ? 1 : spec.shape[0];
  const std::size_t row_bytes = spec.bytes() / static_cast<std::size_t>(rows);
  const std::int64_t step = rows_of_piece(row_bytes);
  std::vector<std::byte> buffer;
  TensorDigest digest(spec.name, spec.dtype);
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    buffer.resize(static_cast<std::size_t>(count) * row_bytes);
    try {
      dataset.read_rows(first, count, buffer.data());
    } catch (const execution::Error& error) {
      throw_usage("{}: tensor '{}' is damaged: {}", path.string(), spec.name, error.what());
    }
    digest.add(first * static_cast<std::int64_t>(row_bytes / execution::size_bytes(spec.dtype)),
               buffer);
    piece(static_cast<std::size_t>(first) * row_bytes, std::span<const std::byte>(buffer));
  }
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
  const auto sealed = std::ranges::find(state_->seal.tensors, tensor, &SealedTensor::name);
  STOWAGE_ASSERT(sealed != state_->seal.tensors.end() &&
                     offset + to.size() <= static_cast<std::size_t>(sealed->bytes),
                 "bytes {}+{} of '{}' are none of {}", offset, to.size(), tensor, path().string());
  std::ifstream& bytes = state_->bytes;
  bytes.seekg(sealed->offset + static_cast<std::int64_t>(offset));
  bytes.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size()));
  if (!bytes) throw_usage("{}: tensor '{}' cannot be read", path().string(), tensor);
}

void Checkpoint::verify() const {
  for (const auto& spec : tensors()) state_->read(spec, [](std::size_t, auto) {});
}

}  // namespace stowage::results
