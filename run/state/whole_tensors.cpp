#include "run/state/whole_tensors.hpp"

#include <algorithm>
#include <cstring>

namespace stowage::run {

using execution::GlobalIndex;
using execution::Range;

namespace {

/// First element of [0, elements) whose place in the whole is not below `global`; parts keep the
/// order of the whole.
std::int64_t lower_bound(const GlobalIndex& index, std::int64_t elements, std::int64_t global) {
  std::int64_t begin = 0, end = elements;
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (index(middle) < global)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

}  // namespace

WholeTensors::WholeTensors(Trainer& trainer, const parallel::Communicator& world)
    : trainer_(trainer),
      world_(world),
      spoken_(trainer.plan().layout(), trainer.plan().model(), trainer.plan().options().sharing) {
  const forecast::TrainerPlan& plan = trainer_.plan();
  all_stages_ = layers::lay_out_state(plan.model().whole_parameters(), plan.model().whole_states(),
                                      plan.options().precision, plan.options().state);
  std::map<std::string, layers::Parameter> parameters;
  for (layers::Parameter& p : plan.model().whole_parameters()) {
    std::string name = p.name;
    parameters.emplace(std::move(name), std::move(p));
  }
  for (const std::string& name : names()) {
    const auto of = parameters.find(layers::parameter_of(name));
    if (of == parameters.end()) continue;
    Whole whole{all_stages_.whole(name), of->second.index()};
    whole.info.buffers.front().shape = of->second.shape;
    wholes_.emplace(name, std::move(whole));
  }
}

const execution::PersistentLayout& WholeTensors::layout() const { return trainer_.plan().layout(); }

std::vector<std::string> WholeTensors::names() const {
  std::vector<std::string> all;
  for (const execution::Bucket& bucket : all_stages_.buckets())
    all.insert(all.end(), bucket.tensors.begin(), bucket.tensors.end());
  return all;
}

const execution::TensorInfo& WholeTensors::info(const std::string& name) const {
  const auto found = wholes_.find(name);
  return found == wholes_.end() ? all_stages_.whole(name) : found->second.info;
}

GlobalIndex WholeTensors::index(const std::string& name) const {
  const auto found = wholes_.find(name);
  return found == wholes_.end() ? GlobalIndex{} : found->second.index;
}

TensorPart WholeTensors::part(const std::string& name, Range range) const {
  if (range.begin == range.end) return {};
  const std::int64_t first = range.begin - layout().held(name).begin;
  const auto size =
      static_cast<std::int64_t>(execution::size_bytes(info(name).buffers.front().dtype));
  TensorPart part{index(name), range.end - range.begin,
                  trainer_.device().address(layout().place(name)) + first * size,
                  layout().on_host(name)};
  part.index.first = range.begin;
  return part;
}

std::vector<TensorPart> WholeTensors::spoken_parts(const std::string& name) const {
  std::vector<TensorPart> parts;
  for (const Range& range : spoken_.of(name)) parts.push_back(part(name, range));
  if (parts.empty()) parts.emplace_back();
  return parts;
}

TensorPart WholeTensors::held_part(const std::string& name) const {
  return part(name, layout().is_part(name) ? layout().held(name) : Range{0, 0});
}

std::vector<std::byte> WholeTensors::gather(const std::string& name) const {
  const std::vector<TensorPart> mine = spoken_parts(name);
  const std::size_t size = execution::size_bytes(info(name).buffers.front().dtype);
  const auto read = [&](const TensorPart& part) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(part.elements) * size);
    const std::byte* all = trainer_.device().address(layout().place(name));
    trainer_.device().read(name, bytes, static_cast<std::size_t>(part.data - all));
    return bytes;
  };
  const std::vector<std::string> parts =
      world_.gather({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(TensorPart)});
  if (world_.rank() != 0) {
    for (const TensorPart& part : mine)
      if (part.elements > 0) world_.send(read(part), 0);
    return {};
  }
  std::vector<std::byte> whole(info(name).bytes());
  for (int rank = 0; rank < world_.size(); ++rank) {
    const std::string& theirs = parts[rank];
    for (std::size_t at = 0; at < theirs.size(); at += sizeof(TensorPart)) {
      TensorPart part;
      std::memcpy(&part, theirs.data() + at, sizeof(part));
      if (part.elements == 0) continue;
      std::vector<std::byte> from;
      if (rank == 0) {
        from = read(part);
      } else {
        from.resize(static_cast<std::size_t>(part.elements) * size);
        world_.receive(from, rank);
      }
      part.index.for_each_run(0, part.elements,
                              [&](std::int64_t local, std::int64_t global, std::int64_t count) {
                                std::memcpy(whole.data() + static_cast<std::size_t>(global) * size,
                                            from.data() + static_cast<std::size_t>(local) * size,
                                            static_cast<std::size_t>(count) * size);
                              });
    }
  }
  return whole;
}

void WholeTensors::write(const std::string& name, std::size_t offset,
                         std::span<const std::byte> from) const {
  if (!layout().is_part(name)) return;
  const auto size =
      static_cast<std::int64_t>(execution::size_bytes(info(name).buffers.front().dtype));
  const Range held = layout().held(name);
  GlobalIndex part = index(name);
  part.first = held.begin;
  const std::int64_t first = static_cast<std::int64_t>(offset) / size;
  const std::int64_t last = first + static_cast<std::int64_t>(from.size()) / size;
  const std::int64_t elements = held.end - held.begin;
  const std::int64_t begin = lower_bound(part, elements, first);
  const std::int64_t end = lower_bound(part, elements, last);
  if (begin >= end) return;
  part.first += begin;
  std::vector<std::byte> staged(static_cast<std::size_t>((end - begin) * size));
  part.for_each_run(
      0, end - begin, [&](std::int64_t local, std::int64_t global, std::int64_t count) {
        std::memcpy(staged.data() + local * size, from.data() + (global - first) * size,
                    static_cast<std::size_t>(count * size));
      });
  trainer_.device().write(name, staged, static_cast<std::size_t>(begin * size));
}

}  // namespace stowage::run
