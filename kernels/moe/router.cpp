#include "kernels/moe/router.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

std::string fault_of(const RouterOptions& options, std::int64_t starts) {
  return starts > 0 ? options.fault() : "cu_seqlens has no element";
}

template <class Op>
void run_on(Queue& queue, const Op& op, const OperandsOf<Op, View>& views) {
  Operands(Op::kName).require(
      queue.stream() == nullptr || op.options.experts <= RouterOptions::kMostExperts,
      "device code takes up to 1024 experts");
  run(queue, op, views);
}

double count(std::int64_t tokens, int per_token) { return static_cast<double>(tokens) * per_token; }

}  // namespace

std::string RouterOptions::fault() const {
  const bool fit = experts > 0 && topk > 0 && groups > 0 && experts % groups == 0 &&
                   group_topk > 0 && group_topk <= groups && topk <= experts / groups * group_topk;
  return fit ? "" : "experts, topk, groups and group_topk do not fit";
}

std::string RouterSelect::fault() const { return fault_of(options, starts); }
void RouterSelect::run(Queue& queue, const Operands<View>& views) const {
  run_on(queue, *this, views);
}

Cost RouterSelect::cost() const {
  const std::int64_t weighed = weights ? tokens * options.topk : 0;
  return {(weights ? 8 : 4) * count(tokens, options.experts),
          bytes(tokens * options.experts + options.experts + weighed,
                execution::accumulation(storage)) +
              bytes(tokens * options.topk, Dtype::int32)};
}

void RouterWeights::run(Queue& queue, const Operands<View>& views) const {
  run_on(queue, *this, views);
}

Cost RouterWeights::cost() const {
  return {4 * count(tokens, options.experts),
          bytes(tokens * (options.experts + options.topk), execution::accumulation(storage)) +
              bytes(tokens * options.topk, Dtype::int32)};
}

std::string RouterBackward::fault() const { return fault_of(options, starts); }
void RouterBackward::run(Queue& queue, const Operands<View>& views) const {
  run_on(queue, *this, views);
}

Cost RouterBackward::cost() const {
  return {
      16 * count(tokens, options.experts),
      bytes(tokens * (2 * options.experts + 2 * options.topk), execution::accumulation(storage)) +
          bytes(2 * tokens * options.topk, Dtype::int32) +
          bytes(options.experts + 1, Dtype::int32)};
}

std::string RouterLosses::fault() const { return fault_of(options, starts); }
void RouterLosses::run(Queue& queue, const Operands<View>& views) const {
  run_on(queue, *this, views);
}

Cost RouterLosses::cost() const {
  return {8 * count(tokens, options.experts),
          bytes(tokens * options.experts + 2, execution::accumulation(storage)) +
              bytes(options.experts + 1, Dtype::int32)};
}

}  // namespace stowage::kernels
