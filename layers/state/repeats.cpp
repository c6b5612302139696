#include "layers/state/repeats.hpp"

#include <utility>
#include <vector>

#include "kernels/elementwise/elementwise.hpp"

namespace stowage::layers {
namespace {

using execution::Access;
using execution::Range;
using execution::Tensor;
using execution::UseIndex;
using execution::View;
using parallel::Message;

/// A gradient's repeated rows on this rank, and what came of the other ranks' ones.
struct Summands {
  std::string name;
  Tensor gradient;
  Range rows;
  int copy = 0;                ///< that this rank has
  std::vector<Tensor> theirs;  ///< in the order of copies, without this rank's

  std::int64_t count() const { return rows.end - rows.begin; }
};

/// ((0 + 1) + 2) + …, of which term `copy` is where the sum goes.
void add_in_order(execution::Queue& queue, std::span<const View> theirs, int copy,
                  const View& mine) {
  const auto before = static_cast<std::size_t>(copy);
  const auto add = [&, op = kernels::Add{mine.buffer()}](const View& x, const View& onto) {
    op.run(queue, {.a = onto, .b = x, .out = onto});
  };
  for (std::size_t i = 1; i < before; ++i) add(theirs[i], theirs[0]);
  if (before > 0) add(theirs[0], mine);
  for (std::size_t i = before; i < theirs.size(); ++i) add(theirs[i], mine);
}

void append_sum(execution::Program& program, const Summands& of) {
  execution::Op op;
  op.name = "sum_repeats/" + of.name;
  const UseIndex mine = op.add_use({of.gradient, Access::update, of.rows});
  std::vector<UseIndex> theirs;
  for (const Tensor copy : of.theirs)
    theirs.push_back(
        op.add_use({copy, theirs.empty() && of.copy > 1 ? Access::update : Access::read}));
  op.cost = static_cast<double>(of.theirs.size()) *
            kernels::Add{program.info(of.theirs[0]).buffers.front()}.cost();
  op.launch = [=, copy = of.copy](execution::Queue& queue, execution::Views v) {
    std::vector<View> summands;
    for (const UseIndex one : theirs) summands.push_back(one.in(v));
    add_in_order(queue, summands, copy, mine.in(v));
  };
  program.append(std::move(op));
}

}  // namespace

void sum_repeats(execution::Program& program, const execution::PersistentLayout& layout,
                 const parallel::RankGroup& tensor, std::span<const Parameter> parameters) {
  std::vector<Summands> all;
  std::vector<Message> messages;
  for (const Parameter& parameter : parameters) {
    const Repeat& repeat = parameter.repeat;
    if (repeat.copies == 1) continue;
    const std::string name = gradient_name(parameter.name);
    Summands of{name, program.add(layout.info(name)), parameter.repeated(), repeat.copy, {}};
    const execution::Dtype dtype = layout.info(name).buffers.front().dtype;
    for (int copy = 0; copy < repeat.copies; ++copy) {
      if (copy == repeat.copy) continue;
      const int peer = tensor.rank() - repeat.copy + copy;
      const Tensor theirs =
          program.scratch("repeats/" + name + "/" + std::to_string(copy), dtype, {of.count()});
      of.theirs.push_back(theirs);
      messages.push_back({peer, true, {of.gradient, of.rows}, name});
      messages.push_back({peer, false, {theirs, {}}, name});
    }
    all.push_back(std::move(of));
  }
  if (all.empty()) return;
  program.append(tensor.exchange(program, "exchange_repeats/" + all.front().name, messages));
  for (const Summands& of : all) append_sum(program, of);
}

}  // namespace stowage::layers
