#include "results/sums_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "execution/error.hpp"

namespace stowage::results {
namespace {

enum Word : std::uint64_t { kNothing, kDone, kFailed };

constexpr std::size_t kWhyBytes = 512;  // of a message, cut

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw execution::Error(execution::Exit::runtime,
                         fmt::format("{} cannot be written", path.string()));
}

}  // namespace

SumsFile::SumsFile(std::filesystem::path path, std::size_t tensors)
    : path_(std::move(path)), tensors_(tensors) {}

std::int64_t SumsFile::record_bytes() const {
  return static_cast<std::int64_t>(sizeof(std::uint64_t) + kWhyBytes +
                                   tensors_ * sizeof(TensorDigest::Sums));
}

void SumsFile::make(const std::filesystem::path& path, int ranks, std::size_t tensors) {
  const auto bytes = static_cast<std::size_t>(SumsFile(path, tensors).record_bytes());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const std::string nothing(bytes, '\0');
  for (int rank = 0; rank < ranks; ++rank) file << nothing;
  file.close();
  if (!file) fail(path);
}

void SumsFile::write(int rank, std::uint64_t word, std::span<const std::byte> rest) const {
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  const std::int64_t at = rank * record_bytes();
  file.seekp(at + static_cast<std::int64_t>(sizeof(word)));
  file.write(reinterpret_cast<const char*>(rest.data()), static_cast<std::streamsize>(rest.size()));
  file.flush();
  file.seekp(at);  // the word last: who reads it finds the rest
  file.write(reinterpret_cast<const char*>(&word), sizeof(word));
  file.close();
  if (!file) fail(path_);
}

void SumsFile::done(int rank, std::span<const TensorDigest> digests) const {
  STOWAGE_ASSERT(digests.size() == tensors_, "{} digests of {} tensors", digests.size(), tensors_);
  std::vector<std::byte> rest(kWhyBytes + tensors_ * sizeof(TensorDigest::Sums));
  for (std::size_t i = 0; i < tensors_; ++i)
    std::memcpy(rest.data() + kWhyBytes + i * sizeof(TensorDigest::Sums), digests[i].sums().data(),
                sizeof(TensorDigest::Sums));
  write(rank, kDone, rest);
}

void SumsFile::failed(int rank, std::string_view why) const {
  why = why.substr(0, kWhyBytes - 1);
  std::vector<std::byte> rest(kWhyBytes);
  std::memcpy(rest.data(), why.data(), why.size());
  write(rank, kFailed, rest);
}

std::optional<std::vector<TensorDigest::Sums>> SumsFile::of(int rank) const {
  std::ifstream file(path_, std::ios::binary);  // opened anew: other hosts may have written
  std::vector<char> record(static_cast<std::size_t>(record_bytes()));
  file.seekg(rank * record_bytes());
  file.read(record.data(), static_cast<std::streamsize>(record.size()));
  std::uint64_t word = kNothing;
  if (file) std::memcpy(&word, record.data(), sizeof(word));
  if (word == kNothing) return std::nullopt;
  const char* rest = record.data() + sizeof(word);
  if (word == kFailed)
    throw execution::Error(execution::Exit::runtime, fmt::format("rank {}: {}", rank, rest));
  std::vector<TensorDigest::Sums> sums(tensors_);
  std::memcpy(sums.data(), rest + kWhyBytes, tensors_ * sizeof(TensorDigest::Sums));
  return sums;
}

}  // namespace stowage::results
