#pragma once

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ctest/kernels/device_array.hpp"
#include "ctest/kernels/digest_rows.hpp"

namespace stowage::kernels::test {

/// All bytes of an array.
inline std::span<const std::byte> bytes_of(const Array& array) {
  return {array.as<std::byte>().data(), array.view().info->bytes()};
}

/// The arrays of a test in device memory: `at(array)` is the view of its copy, made at first use.
class DeviceMirror {
 public:
  View operator()(const Array& array) {
    if (!array.view()) return {};
    std::unique_ptr<DeviceArray>& copy = copies_[array.view().info];
    if (!copy) copy = std::make_unique<DeviceArray>(array);
    return copy->view();
  }
  Array host(const Array& array) const { return copies_.at(array.view().info)->host(); }
  /// Keeps the bytes of all Arrays on the device, for `restore`.
  void keep() {
    for (const auto& [info, copy] : copies_)
      first_.emplace(info, std::make_unique<DeviceArray>(copy->array()));
  }
  /// Puts the bytes of all arrays there again.
  void restore(Queue& queue) const {
    for (const auto& [info, first] : first_) copies_.at(info)->copy(queue, *first);
  }

 private:
  std::map<const execution::TensorInfo*, std::unique_ptr<DeviceArray>> copies_, first_;
};

/// Most replays of any test: STOWAGE_TEST_REPLAYS, for tools that slow every launch down.
inline int most_replays() {
  const char* given = std::getenv("STOWAGE_TEST_REPLAYS");
  return given != nullptr ? std::atoi(given) : std::numeric_limits<int>::max();
}

/// What `work(queue, at)` leaves in `outputs` on a GPU. Arrays are made before; the Arrays of the
/// host keep what they have. Afterwards `replays` launches of a graph, each from the arrays as they
/// were, must leave the same bits.
template <class Work>
std::vector<Array> on_gpu(const Work& work, const std::vector<Array>& outputs, int replays = 3) {
  replays = std::min(replays, most_replays());
  DeviceMirror at;
  DigestRows digests(1 + std::max(replays, 0));
  const auto digest = [&](Queue& queue, int run) {
    std::vector<View> views;
    for (const Array& output : outputs) views.push_back(at(output));
    digests.add(queue, run, views);
  };
  on_gpu_queue([&](Queue& queue) {
    work(queue, at);
    digest(queue, 0);
  });
  std::vector<Array> results;
  for (const Array& output : outputs) results.push_back(at.host(output));
  if (replays <= 0) return results;
  at.keep();
  on_gpu_queue([&](Queue& queue) { at.restore(queue); });
  on_gpu_queue([&](Queue& queue) { work(queue, at); }, replays,
               [&](Queue& queue, int replay) {
                 digest(queue, 1 + replay);
                 at.restore(queue);
               });
  EXPECT_EQ(digests.different(), 0) << "replays left other bits";
  return results;
}

}  // namespace stowage::kernels::test
