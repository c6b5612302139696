#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "execution/queue.hpp"
#include "execution/tensor.hpp"

namespace stowage::execution {

/// How an operation touches a tensor. read: its content only. write: all of it, the old content is
/// not looked at. update: reads and writes in place, or writes a part; such an op is never rerun.
enum class Access : unsigned char { read, write, update };

struct Use {
  Tensor tensor;
  Access access = Access::read;
};

/// What an operation costs at least: arithmetic, and bytes through device memory (or over a link).
struct Cost {
  double flops = 0;
  double bytes = 0;

  friend Cost operator+(Cost a, Cost b) { return {a.flops + b.flops, a.bytes + b.bytes}; }
};

/// Starts the operation on a queue. The views come in the order of the op's uses. It may not
/// capture a tensor or an address, allocate, synchronize, print, or branch on device data.
using Launch = std::function<void(Queue&, std::span<const View>)>;

/// What a communication op exchanges: all ranks of a group must issue equal ones in equal order.
struct Communication {
  std::string kind;   ///< "all_reduce", "all_to_all", "send", …
  std::string group;  ///< name of the group in the process grid
  std::int64_t count = 0;
  Dtype dtype = Dtype::fp32;
  int peer = -1;  ///< of a send or receive

  friend bool operator==(const Communication&, const Communication&) = default;
};

/// One operation of a program.
struct Op {
  std::string name;
  Lane lane = Lane::compute;
  std::vector<Use> uses;
  Cost cost;
  Launch launch;  ///< empty for the copies of inputs and outputs: the executor knows their slots
  std::optional<Communication> communication;
  int scope = -1;  ///< set by Program::append: the innermost open scope
  /// Computes again what an earlier op wrote, from less: only reruns issue it, and it may write no
  /// tensor for the first time.
  bool only_rerun = false;
};

}  // namespace stowage::execution
