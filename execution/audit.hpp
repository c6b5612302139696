#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::execution {

/// Checks that an op touches what it declares and nothing else (host backend).
///
/// While an op runs, all pages of the device arena but those of its declared operands are made
/// inaccessible, and those of operands that it only reads are made read-only, as is the padding of
/// a bucket, which has no value and which exchanges read. What an op writes is filled with a
/// pattern before, so that a value which it did not write is a NaN; the rest of the last page of
/// each operand carries a canary. A fault is noted, the page is opened, and the op goes on: close()
/// then says which op touched which address. Exact if every place starts on a page of its own
/// (PlannerOptions::alignment of 4096).
class Audit {
 public:
  explicit Audit(std::span<std::byte> arena);
  ~Audit();
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  /// Opens the operands of `step`; `addresses` are those of its places, in order.
  void open(const Program& program, const Plan& plan, const Step& step,
            std::span<void* const> addresses);
  /// Makes the arena accessible again.
  /// @throws Error that names `step` and what it touched without declaring it
  void close(const std::string& step);

 private:
  struct Operand {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::string tensor;
    bool reads = false;
    bool writes = false;
    bool whole = false;    ///< not a range of it
    std::size_t room = 0;  ///< multiple of bytes that a whole tensor has to itself
  };

  std::string describe(const std::byte* address) const;

  std::span<std::byte> arena_;
  std::vector<Operand> operands_;
  const Program* program_ = nullptr;
  const Plan* plan_ = nullptr;
  std::ptrdiff_t transient_base_ = 0;
};

}  // namespace stowage::execution
