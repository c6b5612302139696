#include "parallel/collectives.hpp"

#include "execution/error.hpp"
#include "execution/persistent.hpp"

namespace stowage::parallel {
namespace {

using execution::Tensor;
using execution::View;

std::byte* begin(const View& view) { return view.as<std::byte>(); }
std::byte* end(const View& view) { return begin(view) + view.buffer().bytes(); }

/// Checks that the next tensor starts where the padding of this one ends.
void check_neighbours(const View& first, const View& second) {
  const auto padding = static_cast<std::ptrdiff_t>(execution::kBucketGrain) *
                       static_cast<std::ptrdiff_t>(execution::size_bytes(first.dtype()));
  const std::ptrdiff_t gap = begin(second) - end(first);
  STOWAGE_ASSERT(gap >= 0 && gap < padding, "{} and {} are {} bytes apart: not in one bucket",
                 first.info->name, second.info->name, gap);
}

}  // namespace

execution::Op all_reduce_op(const execution::Program& program, std::string name,
                            std::span<const Tensor> tensors, Reduction reduction,
                            std::shared_ptr<Collectives> collectives) {
  STOWAGE_ASSERT(!tensors.empty(), "{} reduces no tensors", name);
  execution::Op op;
  op.lane = execution::Lane::comm;
  const execution::BufferInfo& first = program.info(tensors.front()).buffers.front();
  std::int64_t count = 0;
  for (const Tensor tensor : tensors) {
    const execution::TensorInfo& info = program.info(tensor);
    STOWAGE_ASSERT(info.buffers.size() == 1 && info.buffers.front().dtype == first.dtype,
                   "{} reduces {}, which is not one {} buffer", name, info.name,
                   execution::name(first.dtype));
    op.uses.push_back({tensor, execution::Access::update});
    count += info.buffers.front().elements();
  }
  // Over the links: each rank sends and receives 2 (p - 1) / p of the bytes.
  const double share = 2.0 * (collectives->size() - 1) / collectives->size();
  op.cost = {
      static_cast<double>(count),
      share * static_cast<double>(count) * static_cast<double>(execution::size_bytes(first.dtype))};
  op.communication = execution::Communication{"all_reduce", collectives->group(), {}, count, first.dtype, std::string(parallel::name(reduction)), {}};
  op.name = std::move(name);
  const int index = collectives->announce(op.name);
  op.launch = [reduction, collectives, index](execution::Queue& queue,
                                              std::span<const View> views) {
    for (std::size_t i = 1; i < views.size(); ++i) check_neighbours(views[i - 1], views[i]);
    const std::ptrdiff_t bytes = end(views.back()) - begin(views.front());
    const execution::Dtype dtype = views.front().dtype();
    collectives->all_reduce(queue, index, begin(views.front()),
                            bytes / static_cast<std::ptrdiff_t>(execution::size_bytes(dtype)),
                            dtype, reduction);
  };
  return op;
}

}  // namespace stowage::parallel
