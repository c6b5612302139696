#include "parallel/job/clock_offset.hpp"

#include <cmath>
#include <limits>
#include <span>

namespace stowage::parallel {
namespace {

constexpr int kTrips = 16;

/// Says what time it is as often as `rank` asks.
void answer(const Communicator& ranks, int rank, const std::function<double()>& now) {
  for (int i = 0; i < kTrips; ++i) {
    double time_s = 0;
    ranks.receive(std::as_writable_bytes(std::span(&time_s, 1)), rank);
    time_s = now();
    ranks.send(std::as_bytes(std::span(&time_s, 1)), rank);
  }
}

double ask(const Communicator& ranks, const std::function<double()>& now) {
  double offset_s = 0, shortest_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTrips; ++i) {
    double time_s = 0;
    const double begin_s = now();
    ranks.send(std::as_bytes(std::span(&time_s, 1)), 0);
    ranks.receive(std::as_writable_bytes(std::span(&time_s, 1)), 0);
    const double end_s = now();
    if (end_s - begin_s >= shortest_s) continue;
    shortest_s = end_s - begin_s;
    offset_s = begin_s + shortest_s / 2 - time_s;
  }
  return std::abs(offset_s) <= shortest_s / 2 ? 0 : offset_s;
}

}  // namespace

double clock_offset_s(const Communicator& ranks, const std::function<double()>& now) {
  if (ranks.rank() > 0) return ask(ranks, now);
  for (int rank = 1; rank < ranks.size(); ++rank) answer(ranks, rank, now);
  return 0;
}

}  // namespace stowage::parallel
