#include "offload/caps.hpp"

#include <algorithm>

namespace stowage::offload {

using execution::Step;

CapGuard::Copy CapGuard::last_step() const {
  const Step& step = plan_.steps.back();
  const execution::Place& place = plan_.places[step.places[0]];
  return {static_cast<int>(plan_.steps.size()) - 1, place.bytes,
          &program_.info(place.tensor).module};
}

int CapGuard::record(int step) {
  int& event = plan_.steps[step].records;
  if (event < 0) event = plan_.events++;
  return event;
}

/// Waits on queue 0 for the oldest `count` copies.
void CapGuard::join(Copies& copies, std::size_t count) {
  Step mark;
  mark.what = Step::What::mark;
  mark.waits = {record(copies[count - 1].step)};
  plan_.steps.push_back(std::move(mark));
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(count));
}

std::size_t CapGuard::bytes_of(const Copies& copies) {
  std::size_t bytes = 0;
  for (const Copy& copy : copies) bytes += copy.bytes;
  return bytes;
}

void CapGuard::left() { out_.push_back(last_step()); }

void CapGuard::came_back() { in_.push_back(last_step()); }

int CapGuard::before_copy_back(std::size_t bytes) {
  const std::int64_t cap = plan_.caps.h2d_bytes;
  if (cap < 0) return -1;
  std::size_t count = 0;
  std::size_t under_way = bytes_of(in_) + bytes;
  while (count < in_.size() && under_way > static_cast<std::size_t>(cap))
    under_way -= in_[count++].bytes;
  if (count > 0) join(in_, count);
  for (std::size_t i = plan_.steps.size(); i-- > 0;)
    if (plan_.steps[i].queue == 0) return record(static_cast<int>(i));
  return -1;
}

void CapGuard::needed(int copy_out, int copy_in) {
  std::erase_if(out_, [&](const Copy& copy) { return copy.step <= copy_out; });
  std::erase_if(in_, [&](const Copy& copy) { return copy.step <= copy_in; });
}

void CapGuard::before_compute() {
  const execution::CopyCaps& caps = plan_.caps;
  std::size_t count = 0;
  if (caps.max_inflight >= 0) {
    // The newest copy that must be joined: for each name, the one with k newer ones.
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const auto newer =
          std::count_if(out_.begin() + static_cast<std::ptrdiff_t>(i) + 1, out_.end(),
                        [&](const Copy& copy) { return *copy.module == *out_[i].module; });
      if (newer >= caps.max_inflight && !out_[i].module->empty()) count = i + 1;
    }
  }
  if (caps.d2h_bytes >= 0) {
    std::size_t bytes = bytes_of(out_);
    for (std::size_t i = 0; i < count; ++i) bytes -= out_[i].bytes;
    while (count < out_.size() && bytes > static_cast<std::size_t>(caps.d2h_bytes))
      bytes -= out_[count++].bytes;
  }
  if (count > 0) join(out_, count);
}

void CapGuard::end_of_section() {
  out_.clear();
  in_.clear();
}

}  // namespace stowage::offload
