#include "inputs/deck/xxh64.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace stowage::inputs {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                        kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                        kPrime5 = 0x27D4EB2F165667C5;

template <class Word>
std::uint64_t read(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

}  // namespace

void Xxh64::mix(const std::byte* stripe) {
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    lanes_[i] = round(lanes_[i], read<std::uint64_t>(stripe + 8 * i));
}

void Xxh64::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::size_t held = total_bytes_ % stripe_.size();
  total_bytes_ += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(bytes.size(), stripe_.size() - held);
    std::memcpy(stripe_.data() + held, bytes.data(), taken);
    bytes = bytes.subspan(taken);
    if (held + taken < stripe_.size()) return;
    mix(stripe_.data());
  }
  for (; bytes.size() >= stripe_.size(); bytes = bytes.subspan(stripe_.size())) mix(bytes.data());
  if (!bytes.empty()) std::memcpy(stripe_.data(), bytes.data(), bytes.size());
}

std::uint64_t Xxh64::value() const {
  std::uint64_t hash = kPrime5;
  if (total_bytes_ >= stripe_.size()) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
  }
  hash += total_bytes_;
  const std::byte* at = stripe_.data();
  const std::byte* const end = at + total_bytes_ % stripe_.size();
  for (; end - at >= 8; at += 8)
    hash = std::rotl(hash ^ round(0, read<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  for (; end - at >= 4; at += 4)
    hash = std::rotl(hash ^ read<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
  for (; at != end; ++at) hash = std::rotl(hash ^ read<std::uint8_t>(at) * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

std::string Xxh64::hex() const { return fmt::format("{:016x}", value()); }

}  // namespace stowage::inputs
