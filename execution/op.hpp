#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "execution/function.hpp"
#include "execution/queue.hpp"
#include "execution/tensor.hpp"

namespace stowage::execution {

/// How an operation touches the elements that a use names. read: their content only. write: all of
/// them, the old content is not looked at. update: reads and writes in place, or writes some that
/// make no range, such as columns; such an op is never rerun.
enum class Access : unsigned char { read, write, update };

/// What an operation does with a tensor: all of it, or a range of the elements of its first buffer,
/// the payload. Buffers behind the first, such as scales, are used whole: an op that writes a range
/// writes them, too.
struct Use {
  Tensor tensor;
  Access access = Access::read;
  Range range = {};
};

/// What an operation costs at least: arithmetic, and bytes through device memory (or over a link);
/// and what its kernels on a GPU are known to take beyond that.
struct Cost {
  double flops = 0;
  double bytes = 0;
  /// FLOPs that large bf16 products would do meanwhile: in tiles that are not filled, for
  /// exponentials. Negative: those that 8-bit products save.
  double idle_flops = 0;
  double apart_bytes = 0;   ///< that pass through memory while no product runs
  double more_kernels = 0;  ///< behind the first, each when the one before has ended

  friend Cost operator+(Cost a, Cost b) {
    return {a.flops + b.flops, a.bytes + b.bytes, a.idle_flops + b.idle_flops,
            a.apart_bytes + b.apart_bytes, a.more_kernels + b.more_kernels};
  }
  friend Cost operator*(double times, Cost a) {
    return {times * a.flops, times * a.bytes, times * a.idle_flops, times * a.apart_bytes,
            times * a.more_kernels};
  }
};

/// What the uses of an op name, in their order.
using Views = std::span<const View>;

/// Starts the operation on a queue. The views come in the order of the op's uses. It may not
/// capture a tensor or an address, allocate, synchronize, print, or branch on device data.
using Launch = Function<void(Queue&, Views)>;

/// Which use of an op an operand is: by it a launch finds the operand among the views.
struct UseIndex {
  int index = -1;  ///< -1: the operand is absent

  explicit operator bool() const { return index >= 0; }
  View in(Views views) const { return index < 0 ? View{} : views[static_cast<std::size_t>(index)]; }
};

/// One message of a matched group of sends and receives.
struct Transfer {
  int peer = -1;  ///< rank in the group
  bool sends = false;
  std::int64_t count = 0;
  std::string what = {};  ///< that both ends know it by: "stream of microbatch 3"

  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// What a communication op exchanges. The ranks of a group issue the same ones in the same order;
/// of a matched group ("exchange") each send meets the peer's receive.
struct Communication {
  std::string kind;          ///< "all_reduce", "reduce_scatter", "all_gather", "exchange", …
  std::string group;         ///< name of the group in the process grid
  std::vector<int> members;  ///< ranks of the job, in the group's order
  std::int64_t count = 0;    ///< elements of the whole range; of an exchange: 0
  Dtype dtype = Dtype::fp32;
  std::string detail;               ///< "sum", "min", "root 0", "bf16 on the wire"
  std::vector<Transfer> transfers;  ///< of an exchange

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

  /// Adds an operand. @return what the launch finds it by
  UseIndex add_use(Use use) {
    uses.push_back(use);
    return {static_cast<int>(uses.size()) - 1};
  }
  /// Adds one whose parts lie behind each other. @return the first part
  UseIndex add_uses(const std::vector<Use>& parts) {
    uses.insert(uses.end(), parts.begin(), parts.end());
    return {static_cast<int>(uses.size() - parts.size())};
  }
};

}  // namespace stowage::execution
