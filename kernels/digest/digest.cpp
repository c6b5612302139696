#include "kernels/digest/digest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "execution/error.hpp"
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
void launch(Queue& queue, const DigestPart& part, const View& tensor, const View& sums,
            int words = 1) {
  const std::int64_t count = words * tensor.buffer().elements();
  const std::int64_t groups = (count + detail::kDigestLanes - 1) / detail::kDigestLanes;
  const auto* data = tensor.as<const Word>();
  const detail::AddDigest<Word> functor{
      .data = data,
      .count = count,
      .index = part.index,
      .words = words,
      .key = {detail::digest_key(part.stream, tensor.dtype(), 0),
              detail::digest_key(part.stream, tensor.dtype(), 1)},
      .sums = sums.as<std::uint64_t>(),
      .threads = std::min(groups, kThreads),
      .whole_groups = part.index.dimensions == 0 &&
                      words * part.index.first % detail::kDigestLanes == 0 &&
                      reinterpret_cast<std::uintptr_t>(data) % 16 == 0};
  execution::parallel_for(queue, functor.threads, functor);
}

}  // namespace

void add_digest(Queue& queue, const DigestPart& part, const View& tensor, const View& sums) {
  const Operands operands("add_digest");
  operands.require(static_cast<bool>(tensor), "the tensor is absent");
  operands.require(tensor.data.size() == 1, "the tensor has more than one buffer");
  operands.check(sums, "sums", Dtype::int64, {2});
  operands.require(part.index.first >= 0, "a part counts from 0 on");
  switch (execution::size_bytes(tensor.dtype())) {
    case 1:
      return launch<std::uint8_t>(queue, part, tensor, sums);
    case 2:
      return launch<std::uint16_t>(queue, part, tensor, sums);
    case 4:
      return launch<std::uint32_t>(queue, part, tensor, sums);
    default:
      return launch<std::uint32_t>(queue, part, tensor, sums, 2);
  }
}

std::string digest_text(const std::uint64_t sums[2]) {
  return fmt::format("{:016x}{:016x}", sums[1], sums[0]);
}

}  // namespace stowage::kernels
