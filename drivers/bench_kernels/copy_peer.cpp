#include "drivers/bench_kernels/copy_peer.hpp"

#include <algorithm>

#include "run/measure/random.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 30) / std::int64_t{sizeof(run::Block16)};
constexpr std::int64_t kPerBlock = std::int64_t{sizeof(run::Block16)} / 2;  // bf16
constexpr double kFlopsPerByte = 50;  // a GPU's own is 100 and more

std::int64_t blocks_of(double bytes) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / 2 / sizeof(run::Block16)));
}

}  // namespace

bool CopyPeer::binds(const execution::Cost& cost) {
  return cost.bytes > 0 && cost.flops < kFlopsPerByte * cost.bytes;
}

CopyPeer::CopyPeer(run::Gpu& gpu, double bytes, std::int64_t seed)
    : blocks_(blocks_of(bytes)),
      window_(std::min(blocks_, kMostBlocks)),
      from_(gpu, "copy_from", Role::input, Dtype::bf16, {window_ * kPerBlock}),
      to_(gpu, "copy_to", Role::output, Dtype::bf16, {window_ * kPerBlock}) {
  from_.fill_normal(seed, 0, 1);
}

void CopyPeer::enqueue(execution::Queue& queue) const {
  const std::int64_t mask = window_ < blocks_ ? window_ - 1 : ~std::int64_t{0};
  execution::parallel_for(queue, blocks_,
                          run::CopyBlocks{from_.as<run::Block16>(), to_.as<run::Block16>(), mask});
}

}  // namespace stowage::drivers::bench
