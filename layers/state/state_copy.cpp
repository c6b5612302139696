#include "layers/state/state_copy.hpp"

#include <algorithm>
#include <numeric>

#include "layers/state/state.hpp"

namespace stowage::layers {

using execution::Range;

Spoken::Spoken(const execution::PersistentLayout& layout, const Model& model,
               const Sharing& sharing)
    : layout_(layout), model_(model), sharing_(sharing) {
  for (const Parameter& p : model.parameters())
    if (p.repeat.copy > 0) copies_[p.name] = p.repeated();
}

std::vector<Range> Spoken::of(const std::string& tensor) const {
  const Range all = held(tensor);
  const auto found = copies_.find(parameter_of(tensor));
  const Range left_out = found == copies_.end() ? Range{all.end, all.end} : found->second;
  std::vector<Range> ranges;
  for (const Range& range : {Range{all.begin, std::min(all.end, left_out.begin)},
                             Range{std::max(all.begin, left_out.end), all.end}})
    if (range.begin < range.end) ranges.push_back(range);
  return ranges;
}

Range Spoken::held(const std::string& tensor) const {
  if (!layout_.is_part(tensor)) return {0, 0};
  // What several stages have: the count of steps, and a weight that is tied.
  const bool of_first_stage = is_of_all_stages(tensor) || tensor.ends_with(model_.embedding().name);
  if (of_first_stage && !model_.has_embedding()) return {0, 0};
  const execution::Bucket& bucket = layout_.bucket_of(tensor);
  if (bucket.group.empty()) {  // not a parameter's: every rank of a stage has the same
    parallel::PerAxis first;
    first[parallel::Axis::pipeline] = sharing_.ranks.coordinates[parallel::Axis::pipeline];
    return sharing_.ranks.coordinates == first ? layout_.held(tensor) : Range{0, 0};
  }
  const parallel::RankGroup& holders = sharing_.holders(bucket.group);
  if (bucket.shards.parts > 1) return layout_.held(tensor, holders.rank());
  return holders.rank() == 0 ? layout_.held(tensor) : Range{0, 0};
}

CopyLayout::CopyLayout(std::span<const CopiedPiece> pieces) : at(pieces.size()) {
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return pieces[i].begin; });
  for (const std::size_t i : order) {
    const CopiedPiece& piece = pieces[i];
    if (piece.bytes == 0) continue;
    const bool close = !spans.empty() && piece.begin <= spans.back().from + spans.back().bytes +
                                                            execution::kAlignment;
    if (!close) {
      bytes = execution::align_up(bytes);
      spans.push_back({piece.begin, bytes, 0});
    }
    Span& span = spans.back();
    const std::size_t before = piece.begin - span.from;
    at[i] = span.to + before;
    span.bytes = before + piece.bytes;
    bytes = span.to + span.bytes;
  }
}

std::size_t state_copy_bytes(const execution::PersistentLayout& layout, const Model& model,
                             const Sharing& sharing) {
  const Spoken spoken(layout, model, sharing);
  std::vector<CopiedPiece> pieces;
  for (const execution::Bucket& bucket : layout.buckets())
    for (const std::string& tensor : bucket.tensors) {
      const execution::TensorInfo& info = layout.whole(tensor);
      if (info.lifetime == execution::Lifetime::gradient) continue;
      const std::size_t size = execution::size_bytes(info.buffers.front().dtype);
      for (const Range& range : spoken.of(tensor)) {
        const auto first = static_cast<std::size_t>(range.begin - layout.held(tensor).begin);
        pieces.push_back(
            {layout.place(tensor).offset + first * size + (layout.on_host(tensor) ? kOnHost : 0),
             static_cast<std::size_t>(range.end - range.begin) * size});
      }
    }
  return CopyLayout(pieces).bytes;
}

}  // namespace stowage::layers
