#include "run/machine/agreement.hpp"

#include <algorithm>
#include <cstring>

#include "execution/error.hpp"

namespace stowage::run {
namespace {

/// Bit by bit: the ranks run one program, on machines of one kind.
std::string to_bytes(std::span<const double> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::vector<double> from_bytes(const std::string& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

std::string first_objection(const parallel::Communicator& world, const std::string& objection) {
  std::string first;
  for (const std::string& one : world.gather(objection))
    if (first.empty()) first = one;
  return world.broadcast(first);
}

std::vector<double> of_rank_0(const parallel::Communicator& world, std::span<const double> values) {
  return from_bytes(world.broadcast(to_bytes(values)));
}

std::vector<double> by_rank(const parallel::Communicator& world, std::span<const double> values) {
  const std::vector<std::string> all = world.gather(to_bytes(values));
  std::vector<double> table(values.size() * all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<double> column = from_bytes(all[rank]);
    STOWAGE_ASSERT(column.size() == values.size(), "rank {} has {} numbers, rank 0 has {}", rank,
                   column.size(), values.size());
    for (std::size_t row = 0; row < column.size(); ++row)
      table[row * all.size() + rank] = column[row];
  }
  return table;
}

std::vector<double> largest_of_ranks(std::span<const double> values, std::size_t ranks) {
  std::vector<double> largest;
  for (std::size_t at = 0; at < values.size(); at += ranks)
    largest.push_back(std::ranges::max(values.subspan(at, ranks)));
  return largest;
}

}  // namespace stowage::run
