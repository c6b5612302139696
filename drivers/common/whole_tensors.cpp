#include "drivers/common/whole_tensors.hpp"

#include <algorithm>

namespace stowage::drivers {

using execution::Range;

WholeTensors::WholeTensors(layers::Trainer& trainer, const parallel::Communicator& world)
    : trainer_(trainer), world_(world) {}

const execution::PersistentLayout& WholeTensors::layout() const { return trainer_.plan().layout(); }

std::vector<std::string> WholeTensors::names() const {
  std::vector<std::string> all;
  for (const execution::Bucket& bucket : layout().buckets())
    all.insert(all.end(), bucket.tensors.begin(), bucket.tensors.end());
  return all;
}

const execution::TensorInfo& WholeTensors::info(const std::string& name) const {
  return layout().whole(name);
}

Range WholeTensors::spoken_for(const std::string& name, int shard) const {
  if (layout().bucket_of(name).shards.parts == 1)
    return shard == 0 ? layout().held(name, -1) : Range{0, 0};
  return layout().held(name, shard);
}

std::vector<std::byte> WholeTensors::read(const std::string& name, Range range) const {
  const std::size_t size = execution::size_bytes(info(name).buffers.front().dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(range.end - range.begin) * size);
  const std::int64_t first = range.begin - layout().held(name).begin;
  if (!bytes.empty()) trainer_.device().read(name, bytes, static_cast<std::size_t>(first) * size);
  return bytes;
}

std::vector<std::byte> WholeTensors::gather(const std::string& name) const {
  const execution::Bucket& bucket = layout().bucket_of(name);
  if (bucket.shards.parts == 1)
    return world_.rank() == 0 ? read(name, spoken_for(name, 0)) : std::vector<std::byte>();
  const parallel::RankGroup& group = trainer_.plan().options().sharing.holders(bucket.group);
  std::vector<std::byte> whole(world_.rank() == 0 ? info(name).bytes() : 0);
  const std::size_t size = execution::size_bytes(bucket.dtype);
  for (int shard = 0; shard < group.size(); ++shard) {
    const int owner = group.members()[static_cast<std::size_t>(shard)];
    const Range range = spoken_for(name, shard);
    if (range.begin == range.end) continue;
    const std::span<std::byte> part =
        world_.rank() == 0
            ? std::span(whole).subspan(static_cast<std::size_t>(range.begin) * size,
                                       static_cast<std::size_t>(range.end - range.begin) * size)
            : std::span<std::byte>();
    if (owner == world_.rank()) {
      const std::vector<std::byte> mine = read(name, range);
      if (owner == 0)
        std::copy(mine.begin(), mine.end(), part.begin());
      else
        world_.send(mine, 0);
    } else if (world_.rank() == 0) {
      world_.receive(part, owner);
    }
  }
  return whole;
}

void WholeTensors::write(const std::string& name, std::size_t offset,
                         std::span<const std::byte> from) const {
  const std::size_t size = execution::size_bytes(info(name).buffers.front().dtype);
  const Range held = layout().held(name);
  const std::size_t begin = std::max(offset, static_cast<std::size_t>(held.begin) * size);
  const std::size_t end = std::min(offset + from.size(), static_cast<std::size_t>(held.end) * size);
  if (begin < end)
    trainer_.device().write(name, from.subspan(begin - offset, end - begin),
                            begin - static_cast<std::size_t>(held.begin) * size);
}

}  // namespace stowage::drivers
