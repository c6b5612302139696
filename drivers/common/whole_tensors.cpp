#include "drivers/common/whole_tensors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

namespace stowage::drivers {

using execution::Range;

WholeTensors::WholeTensors(layers::Trainer& trainer, const parallel::Communicator& world)
    : trainer_(trainer), world_(world) {
  const layers::TrainerPlan& plan = trainer.plan();
  whole_ = layers::lay_out_state(plan.model().whole_parameters(), plan.model().whole_states(),
                                 plan.options().precision, plan.options().state);
}

const execution::PersistentLayout& WholeTensors::layout() const { return trainer_.plan().layout(); }

std::vector<std::string> WholeTensors::names() const {
  std::vector<std::string> all;
  for (const execution::Bucket& bucket : whole_.buckets())
    all.insert(all.end(), bucket.tensors.begin(), bucket.tensors.end());
  return all;
}

const execution::TensorInfo& WholeTensors::info(const std::string& name) const {
  return whole_.whole(name);
}

Range WholeTensors::spoken_for(const std::string& name) const {
  if (!layout().is_part(name)) return {0, 0};
  const layers::Model& model = trainer_.plan().model();
  const layers::Sharing& sharing = trainer_.plan().options().sharing;
  // What several stages have: the count of steps, and a weight that is tied.
  const bool of_first_stage = name == layers::kGoodSteps || name.ends_with(model.embedding().name);
  if (of_first_stage && !model.stage().embedding) return {0, 0};
  const execution::Bucket& bucket = layout().bucket_of(name);
  if (bucket.shards.parts > 1) return layout().held(name, sharing.holders(bucket.group).rank());
  return sharing.ranks.group(parallel::Group::dense_gradients).rank() == 0 ? layout().held(name)
                                                                           : Range{0, 0};
}

std::vector<Range> WholeTensors::gather_spoken_for(const std::string& name) const {
  const Range mine = spoken_for(name);
  std::vector<Range> all;
  for (const std::string& text : world_.gather(fmt::format("{} {}", mine.begin, mine.end))) {
    std::istringstream words(text);
    words >> all.emplace_back().begin >> all.back().end;
  }
  return all;
}

std::vector<std::byte> WholeTensors::read(const std::string& name, Range range) const {
  const std::size_t size = execution::size_bytes(info(name).buffers.front().dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(range.end - range.begin) * size);
  const std::int64_t first = range.begin - layout().held(name).begin;
  if (!bytes.empty()) trainer_.device().read(name, bytes, static_cast<std::size_t>(first) * size);
  return bytes;
}

std::vector<std::byte> WholeTensors::gather(const std::string& name) const {
  const std::vector<Range> ranges = gather_spoken_for(name);
  const Range mine = spoken_for(name);
  if (world_.rank() > 0) {
    if (mine.begin < mine.end) world_.send(read(name, mine), 0);
    return {};
  }
  std::vector<std::byte> whole(info(name).bytes());
  const std::size_t size = execution::size_bytes(info(name).buffers.front().dtype);
  for (int owner = 0; owner < world_.size(); ++owner) {
    const Range range = ranges[static_cast<std::size_t>(owner)];
    if (range.begin == range.end) continue;
    const std::span<std::byte> part =
        std::span(whole).subspan(static_cast<std::size_t>(range.begin) * size,
                                 static_cast<std::size_t>(range.end - range.begin) * size);
    if (owner == 0)
      std::ranges::copy(read(name, mine), part.begin());
    else
      world_.receive(part, owner);
  }
  return whole;
}

void WholeTensors::write(const std::string& name, std::size_t offset,
                         std::span<const std::byte> from) const {
  if (!layout().is_part(name)) return;
  const std::size_t size = execution::size_bytes(info(name).buffers.front().dtype);
  const Range held = layout().held(name);
  const std::size_t begin = std::max(offset, static_cast<std::size_t>(held.begin) * size);
  const std::size_t end = std::min(offset + from.size(), static_cast<std::size_t>(held.end) * size);
  if (begin < end)
    trainer_.device().write(name, from.subspan(begin - offset, end - begin),
                            begin - static_cast<std::size_t>(held.begin) * size);
}

}  // namespace stowage::drivers
