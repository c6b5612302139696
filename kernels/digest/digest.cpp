#include "kernels/digest/digest.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "execution/philox.hpp"
#include "kernels/cost.hpp"
#include "kernels/digest/functor.hpp"
#include "kernels/operands.hpp"

namespace stowage::kernels {

using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// Enough threads to fill a GPU, few enough that their atomics at the end cost nothing.
constexpr std::int64_t kThreads = std::int64_t{1} << 17;

// `words` of the type Word make one element.
template <class Word>
void launch(Queue& queue, DigestSlice slice, const View& tensor, const View& sums, int words = 1) {
  const std::int64_t count = words * tensor.buffer().elements();
  slice = {slice.stream, words * slice.first, words * slice.run, words * slice.stride};
  const bool together = slice.run == 0 || slice.run >= count;
  const std::int64_t groups = (count + detail::kDigestLanes - 1) / detail::kDigestLanes;
  const auto* data = tensor.as<const Word>();
  const detail::AddDigest<Word> functor{
      .data = data,
      .count = count,
      .first = slice.first,
      .run = together ? std::max<std::int64_t>(count, 1) : slice.run,
      .stride = slice.stride,
      .key = {detail::digest_key(slice.stream, tensor.dtype(), 0),
              detail::digest_key(slice.stream, tensor.dtype(), 1)},
      .sums = sums.as<std::uint64_t>(),
      .threads = std::min(groups, kThreads),
      .whole_groups = together && slice.first % detail::kDigestLanes == 0 &&
                      reinterpret_cast<std::uintptr_t>(data) % 16 == 0};
  execution::parallel_for(queue, functor.threads, functor);
}

}  // namespace

void add_digest(Queue& queue, const DigestSlice& slice, const View& tensor, const View& sums) {
  const Operands operands("add_digest");
  operands.require(static_cast<bool>(tensor), "the tensor is absent");
  operands.require(tensor.data.size() == 1, "the tensor has more than one buffer");
  operands.check(sums, "sums", Dtype::int64, {2});
  operands.require(slice.first >= 0 && slice.run >= 0 && slice.stride >= 0,
                   "a slice counts from 0 on");
  const bool apart = slice.run == 0 || slice.stride >= slice.run;
  operands.require(apart || slice.run >= tensor.buffer().elements(), "the runs of a slice overlap");
  switch (execution::size_bytes(tensor.dtype())) {
    case 1:
      return launch<std::uint8_t>(queue, slice, tensor, sums);
    case 2:
      return launch<std::uint16_t>(queue, slice, tensor, sums);
    case 4:
      return launch<std::uint32_t>(queue, slice, tensor, sums);
    default:
      return launch<std::uint32_t>(queue, slice, tensor, sums, 2);
  }
}

void add_digest(Queue& queue, const execution::PersistentLayout& layout, void* region,
                std::span<const std::string> names, const View& sums,
                const std::function<DigestSlice(const execution::TensorInfo&)>& slice) {
  for (const std::string& name : names) {
    const execution::TensorInfo& info = layout.info(name);
    void* const address = static_cast<std::byte*>(region) + layout.place(name).offset;
    const View view{std::span<void* const>(&address, 1), &info};
    const DigestSlice part =
        slice ? slice(info) : DigestSlice{.stream = execution::stream_of(name)};
    add_digest(queue, part, view, sums);
  }
}

std::string digest_text(const std::uint64_t sums[2]) {
  return fmt::format("{:016x}{:016x}", sums[1], sums[0]);
}

execution::Cost digest_cost(std::int64_t count, Dtype dtype) { return {0, bytes(count, dtype)}; }

}  // namespace stowage::kernels
