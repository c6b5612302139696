#pragma once

#include <deque>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/case.hpp"
#include "kernels/buffer_of.hpp"

namespace stowage::drivers::bench {

/// The memory of a case: an Operand and its view for each operand that an operator declares.
class OperatorMemory {
 public:
  /// @param stride columns of a tensor of which an operand is the first ones; 0: has no others
  OperatorMemory(run::Processor& processor, std::int64_t seed, std::int64_t stride)
      : processor_(processor), seed_(seed), stride_(stride) {}

  void place(const kernels::Spec& spec, Operand*& operand, execution::View& view);
  void place(const kernels::Spec& spec, kernels::ColumnsOf<Operand*>& operand,
             kernels::Columns& view);
  void place(const kernels::Spec& spec, Operand*& operand, kernels::RowsOf<execution::View>& view) {
    place(spec, operand, view.view);
  }
  void place(const kernels::Spec& spec, Operand*& operand,
             kernels::BufferOf<execution::View>& view) {
    place(spec, operand, view.whole);
  }
  /// All operands that there are, in the order of the declaration.
  std::vector<Operand*> all();

 private:
  run::Processor& processor_;
  std::int64_t seed_, stride_;
  std::deque<Operand> operands_;
  std::deque<Bound> bound_;
};

/// A case made from an operator's declaration; what is read is nearly normal. A check is added to
/// it.
template <kernels::Operator Op>
class OperatorCase : public Case {
 public:
  OperatorCase(run::Processor& processor, const Op& one, std::int64_t seed, std::int64_t stride = 0)
      : op_(one), memory_(processor, seed, stride) {
    one.each([&](const kernels::Spec& spec, auto& operand,
                 auto& view) { memory_.place(spec, operand, view); },
             o_, views_);
    operands = memory_.all();
  }
  execution::Cost cost() const override { return op_.cost(); }
  void enqueue(const std::string&, execution::Queue& queue) override { op_.run(queue, views_); }

 protected:
  const Op op_;
  kernels::OperandsOf<Op, Operand*> o_ = {};  ///< null if absent

 private:
  OperatorMemory memory_;
  kernels::OperandsOf<Op, execution::View> views_;
};

/// The entry of a case that is made from the processor, the shape and the seed.
template <class One>
Entry operator_entry(const char* name, const char* help, std::vector<Shape> shapes) {
  return {
      .name = name,
      .help = help,
      .shapes = std::move(shapes),
      .implementations = {{"ours", "", ""}},
      .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<One>(gpu, shape, seed);
      }};
}

}  // namespace stowage::drivers::bench
