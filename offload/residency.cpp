#include "offload/residency.hpp"

#include <algorithm>

namespace stowage::offload {

using execution::Access;
using execution::Place;
using execution::Region;
using execution::Tensor;

Residency::Residency(const execution::Program& program, const execution::PersistentLayout& layout,
                     const GradientMemoryReuse& reuse, execution::Plan& plan)
    : program_(program),
      layout_(layout),
      reuse_(reuse),
      plan_(plan),
      now_(program.tensors().size()),
      again_(program.tensors().size(), 0) {}

std::vector<int> Residency::bind(const execution::Op& op, bool again,
                                 const std::vector<int>& windows) {
  std::vector<int> places;
  places.reserve(op.uses.size());
  // What a rerun reads is bound before what it writes moves on.
  std::vector<std::size_t> made_at;
  for (const execution::Use& use : op.uses) {
    const execution::TensorInfo& info = program_.info(use.tensor);
    if (is_persistent(info.lifetime) && layout_.on_host(info.name)) {
      places.push_back(*std::ranges::find(windows, use.tensor,
                                          [&](int place) { return plan_.places[place].tensor; }));
      continue;
    }
    const std::vector<int>& at = residence(use.tensor);
    if (again && use.access == Access::write) made_at.push_back(places.size());
    places.insert(places.end(), at.begin(), at.end());
  }
  std::size_t next = 0;
  for (const execution::Use& use : op.uses) {
    if (!again || use.access != Access::write) continue;
    const std::vector<int> made = made_again(use);
    std::copy(made.begin(), made.end(),
              places.begin() + static_cast<std::ptrdiff_t>(made_at[next++]));
  }
  return places;
}

int Residency::place(Tensor tensor, int buffer) { return residence(tensor)[buffer]; }

int Residency::host_place(Tensor tensor, int buffer) { return add(tensor, buffer, Region::host); }

int Residency::home(Tensor tensor, std::size_t first, std::size_t bytes) {
  const auto [found, added] =
      homes_.try_emplace({tensor.id, first, bytes}, static_cast<int>(plan_.places.size()));
  if (added) {
    const std::size_t begin = layout_.place(program_.info(tensor).name).offset;
    plan_.places.push_back({tensor, 0, Region::host, begin + first, bytes, first});
  }
  return found->second;
}

int Residency::window(Tensor tensor, std::size_t first, std::size_t bytes) {
  plan_.places.push_back({tensor, 0, Region::transient, 0, bytes, first});
  return static_cast<int>(plan_.places.size()) - 1;
}

int Residency::come_back(Tensor tensor, int buffer) {
  return residence(tensor)[buffer] = add(tensor, buffer, Region::transient);
}

int Residency::add(Tensor tensor, int buffer, Region region) {
  const execution::TensorInfo& info = program_.info(tensor);
  Place place{tensor, buffer, region, 0, info.buffers[buffer].bytes()};
  if (is_persistent(info.lifetime)) {
    place.region = Region::persistent;
    place.offset = layout_.place(info.name).offset;
  }
  plan_.places.push_back(place);
  return static_cast<int>(plan_.places.size()) - 1;
}

std::vector<int> Residency::add_residence(Tensor tensor) {
  std::vector<int> places;
  places.reserve(program_.info(tensor).buffers.size());
  for (std::size_t b = 0; b < program_.info(tensor).buffers.size(); ++b)
    places.push_back(add(tensor, static_cast<int>(b), Region::transient));
  return places;
}

std::vector<int>& Residency::residence(Tensor tensor) {
  std::vector<int>& places = now_[tensor.id];
  if (!places.empty()) return places;
  places = add_residence(tensor);
  const bool kept = plan_.decisions[tensor.id] == execution::Decision::keep;
  if (!kept || !reuse_.has(tensor)) return places;
  for (std::size_t b = 0; b < places.size(); ++b) {
    Place& place = plan_.places[places[b]];
    place.region = Region::persistent;
    place.offset = reuse_.offset(tensor, static_cast<int>(b));
  }
  return places;
}

std::vector<int> Residency::made_again(const execution::Use& use) {
  const Tensor tensor = use.tensor;
  const int id = tensor.id;
  const execution::Range part = program_.resolve(use);
  const std::int64_t all = program_.resolve({tensor, Access::write}).end;
  if (part.end - part.begin < all) {
    Unfinished& unfinished = unfinished_[tensor.id];
    if (unfinished.places.empty()) unfinished.places = made_again({tensor, Access::write});
    unfinished.elements += part.end - part.begin;
    const std::vector<int> places = unfinished.places;
    if (unfinished.elements == all) unfinished_.erase(tensor.id);
    return places;
  }
  const bool saved = program_.info(tensor).lifetime == execution::Lifetime::saved;
  const bool wanted = plan_.decisions[id] == execution::Decision::recompute && !again_[id];
  if (saved && !wanted) return add_residence(tensor);
  again_[id] = 1;
  return now_[id] = add_residence(tensor);
}

}  // namespace stowage::offload
