#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "execution/byte_map.hpp"
#include "execution/contents.hpp"

namespace stowage::execution {

/// Which value every op of some programs reads and writes, if ops run in program order: each write
/// makes a value of its own. A plan may issue steps in another order, move bytes, and compute them
/// again; what every op sees must be the same.
class Versions {
 public:
  /// Bytes [begin, end) of a whole buffer and the value that they have.
  struct Value {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int64_t version = 0;  ///< 0: from before the first execution
  };

  Versions(std::span<const Program* const> programs, const Contents& contents);

  /// Follows one more execution of a program, from what the last one left. Sections that repeat are
  /// followed for two periods, as in for_each_issued(plan, 2, …).
  void execute(int program);

  /// What a buffer of a use of the execution under way finds, in the order of bytes.
  /// @param operand index among all buffers of the op's uses, as of the places of a step
  std::span<const Value> read(int op, std::size_t operand, int repetition) const;
  /// What it leaves. An op that only reruns brings back what was there already.
  std::span<const Value> written(int op, std::size_t operand, int repetition) const;
  /// What bytes of a tensor's first buffer hold behind all executions so far; until the next call.
  std::span<const Value> now(int program, Tensor tensor, Bytes bytes);

 private:
  /// Elements [begin, end) of values_.
  struct Span {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct OperandValues {
    Span read, written;
  };

  /// The values that bytes of a whole buffer have now.
  Span find(int content, Bytes bytes);
  Span write(int content, Bytes bytes);
  void follow(const Op& op);
  const OperandValues& at(int op, std::size_t operand, int repetition) const;
  std::span<const Value> values(const Span& span) const {
    return {values_.data() + span.begin, span.end - span.begin};
  }

  std::span<const Program* const> programs_;
  const Contents& contents_;
  std::vector<std::size_t> base_;  ///< by content: where its bytes begin in order_
  ByteMap order_;                  ///< values of all buffers, one behind the other
  int program_ = 0;
  std::int64_t writes_ = 0;
  std::vector<Value> values_;
  std::vector<OperandValues> operands_;                  ///< of the execution under way
  std::vector<std::vector<std::size_t>> first_operand_;  ///< by op and period: index of the first
};

}  // namespace stowage::execution
