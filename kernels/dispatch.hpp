#pragma once

#include <fmt/core.h>

#include <concepts>
#include <string_view>
#include <utility>

#include "execution/dtype.hpp"
#include "execution/error.hpp"
#include "execution/queue.hpp"
#include "kernels/operands.hpp"

namespace stowage::kernels {

/// The address of an operand, taken from its view before an operation is enqueued: a view may not
/// outlive the call, the bytes do.
class Address {
 public:
  Address() = default;
  explicit Address(const execution::View& view) : data_(view ? view.data[0] : nullptr) {}

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
};

/// Ends a launch for which an operator has no device code.
[[noreturn]] inline void throw_no_cuda(std::string_view op) {
  throw execution::Error(execution::Exit::runtime, fmt::format("{} has no cuda version yet", op));
}

/// Runs an operator on the backend of its queue: enqueues `reference()` on the host, calls
/// `launch(stream)` at once on a GPU. Both are lambdas over addresses and sizes.
template <std::invocable Reference, std::invocable<void*> Launch>
void run(execution::Queue& queue, Reference reference, Launch&& launch) {
  if (queue.stream() != nullptr)
    std::forward<Launch>(launch)(queue.stream());
  else
    queue.enqueue(std::move(reference));
}

/// The same, with `reference.operator()<S>()` for the storage type S of `storage`.
template <class Reference, std::invocable<void*> Launch>
void run(execution::Queue& queue, execution::Dtype storage, Reference reference, Launch&& launch) {
  run(
      queue,
      [storage, reference = std::move(reference)] {
        execution::with_storage_type(storage, reference);
      },
      std::forward<Launch>(launch));
}

/// The same, for operators without device code.
template <std::invocable Reference>
void run(execution::Queue& queue, std::string_view op, Reference reference) {
  run(queue, std::move(reference), [op](void*) { throw_no_cuda(op); });
}
template <class Reference>
void run(execution::Queue& queue, std::string_view op, execution::Dtype storage,
         Reference reference) {
  run(queue, storage, std::move(reference), [op](void*) { throw_no_cuda(op); });
}

}  // namespace stowage::kernels
