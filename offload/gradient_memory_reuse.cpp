#include "offload/gradient_memory_reuse.hpp"

#include <algorithm>
#include <limits>

namespace stowage::offload {

using execution::Access;
using execution::align_up;
using execution::Lifetime;
using execution::Place;
using execution::Plan;
using execution::Program;
using execution::Region;

namespace {

constexpr int kNever = std::numeric_limits<int>::max();

struct Workspace {
  int tensor;
  std::size_t bytes;
};

/// Scratch that one compute op before `end` writes and nothing else uses, largest first: one of
/// each op, since all of these may lie in the same bytes.
std::vector<Workspace> workspaces(const Program& program, int end) {
  std::vector<int> uses(program.tensors().size(), 0);
  for (const execution::Op& op : program.ops())
    for (const execution::Use& use : op.uses) ++uses[use.tensor.id];
  std::vector<Workspace> found;
  for (int i = 0; i < end; ++i) {
    const execution::Op& op = program.ops()[i];
    if (op.lane != execution::Lane::compute) continue;  // or one queue would wait for the other
    Workspace largest{0, 0};
    for (const execution::Use& use : op.uses) {
      const execution::TensorInfo& info = program.info(use.tensor);
      if (info.lifetime == Lifetime::scratch && info.buffers.size() == 1 &&
          info.bytes() > largest.bytes && use.access == Access::write && uses[use.tensor.id] == 1)
        largest = {use.tensor.id, info.bytes()};
    }
    if (largest.bytes > 0) found.push_back(largest);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Workspace& a, const Workspace& b) { return a.bytes > b.bytes; });
  return found;
}

}  // namespace

GradientMemoryReuse::GradientMemoryReuse(const Program& program,
                                         const execution::PersistentLayout& layout,
                                         const std::vector<execution::Tensor>& tenants,
                                         std::size_t alignment)
    : offsets_(program.tensors().size()) {
  const std::vector<execution::UseSpan> spans = execution::use_spans(program);
  find_rooms(program, layout, spans);
  place_workspaces(program, alignment);
  for (const execution::Tensor tenant : tenants) {
    const int id = tenant.id;
    const std::vector<Gap> before = gaps_;
    std::vector<std::size_t> offsets;
    for (const execution::BufferInfo& buffer : program.info(tenant).buffers)
      if (std::size_t offset = 0; take(buffer.bytes(), spans[id].last, alignment, offset))
        offsets.push_back(offset);
    if (offsets.size() == program.info(tenant).buffers.size()) {
      offsets_[id] = std::move(offsets);
      any_ = true;
    } else {
      gaps_ = before;
    }
  }
}

/// The bytes that are free for longest serve the ops up to then, as many of them as find room.
void GradientMemoryReuse::place_workspaces(const Program& program, std::size_t alignment) {
  int end = 0;  // when the last gradient is written
  for (const Room& room : rooms_) end = std::max(end, room.free_until);
  std::vector<Workspace> all = workspaces(program, end);
  std::size_t offset = 0;
  for (auto largest = all.begin(); largest != all.end(); ++largest) {
    if (!take(largest->bytes, end - 1, alignment, offset)) continue;
    for (auto one = largest; one != all.end(); ++one) offsets_[one->tensor] = {offset};
    return;
  }
}

/// Gradients that a step writes before it reads them, each up to where the next one begins.
void GradientMemoryReuse::find_rooms(const Program& program,
                                     const execution::PersistentLayout& layout,
                                     const std::vector<execution::UseSpan>& spans) {
  for (const execution::Bucket& bucket : layout.buckets()) {
    if (bucket.tensors.empty() || bucket.home == Region::host ||
        layout.whole(bucket.tensors.front()).lifetime != Lifetime::gradient)
      continue;
    for (std::size_t t = 0; t < bucket.tensors.size(); ++t) {
      const execution::Tensor tensor = program.find(bucket.tensors[t]);
      if (!tensor) continue;
      const execution::UseSpan& span = spans[tensor.id];
      if (span.first_access != Access::write) continue;
      const std::size_t end = t + 1 < bucket.tensors.size()
                                  ? layout.place(bucket.tensors[t + 1]).offset
                                  : bucket.offset + bucket.bytes();
      rooms_.push_back({layout.place(bucket.tensors[t]).offset, end, tensor.id, span.first});
    }
  }
  // The verifier bounds tenants by the ends of gradients' places: none may lie in the padding
  // behind the last gradient, which belongs to no place.
  if (!rooms_.empty())
    rooms_.back().end = layout.place(program.info({rooms_.back().tensor}).name).end();
  for (const Room& room : rooms_)
    if (!gaps_.empty() && gaps_.back().end == room.begin)
      gaps_.back().end = room.end;
    else
      gaps_.push_back({room.begin, room.end});
}

/// The room that a byte lies in, or the next one.
std::vector<GradientMemoryReuse::Room>::const_iterator GradientMemoryReuse::room_at(
    std::size_t byte) const {
  return std::upper_bound(rooms_.begin(), rooms_.end(), byte,
                          [](std::size_t at, const Room& room) { return at < room.end; });
}

int GradientMemoryReuse::free_until(std::size_t begin, std::size_t end) const {
  int first = kNever;
  for (auto room = room_at(begin); room != rooms_.end() && room->begin < end; ++room)
    first = std::min(first, room->free_until);
  return first;
}

/// Takes the bytes that are free for the shortest time, of those that are free for long enough.
bool GradientMemoryReuse::take(std::size_t bytes, int last_use, std::size_t alignment,
                               std::size_t& offset) {
  const std::size_t size = align_up(bytes, alignment);
  int best = kNever;
  std::size_t at = gaps_.size();
  const auto consider = [&](std::size_t gap, std::size_t begin) {
    if (begin < gaps_[gap].begin || begin + size > gaps_[gap].end) return;
    const int until = free_until(begin, begin + size);
    if (until <= last_use || until >= best) return;
    best = until;
    at = gap;
    offset = begin;
  };
  for (std::size_t g = 0; g < gaps_.size(); ++g) {
    consider(g, align_up(gaps_[g].begin, alignment));
    if (gaps_[g].end >= size) consider(g, (gaps_[g].end - size) / alignment * alignment);
  }
  for (const Room& room : rooms_) {
    const auto gap = std::upper_bound(gaps_.begin(), gaps_.end(), room.begin,
                                      [](std::size_t b, const Gap& g) { return b < g.end; });
    if (gap == gaps_.end()) break;
    consider(static_cast<std::size_t>(gap - gaps_.begin()), align_up(room.begin, alignment));
    if (room.end >= size)
      consider(static_cast<std::size_t>(gap - gaps_.begin()),
               (room.end - size) / alignment * alignment);
  }
  if (at == gaps_.size()) return false;
  const Gap taken = gaps_[at];
  gaps_.erase(gaps_.begin() + static_cast<std::ptrdiff_t>(at));
  const auto where = gaps_.begin() + static_cast<std::ptrdiff_t>(at);
  const Gap rest[] = {{taken.begin, offset}, {offset + size, taken.end}};
  gaps_.insert(where, std::begin(rest), std::end(rest));
  std::erase_if(gaps_, [](const Gap& gap) { return gap.begin == gap.end; });
  return true;
}

void GradientMemoryReuse::leave_in_time(Plan& plan) const {
  if (rooms_.empty()) return;
  std::vector<int> first(offsets_.size(), kNever);  // by tensor
  std::vector<int> last(plan.places.size(), -1);
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    for (const int at : plan.steps[i].places) {
      const int id = plan.places[at].tensor.id;
      first[id] = std::min(first[id], static_cast<int>(i));
      last[at] = static_cast<int>(i);
    }
  for (std::size_t p = 0; p < plan.places.size(); ++p) {
    Place& place = plan.places[p];
    if (place.region != Region::persistent || !has(place.tensor)) continue;
    for (auto room = room_at(place.offset); room != rooms_.end() && room->begin < place.end();
         ++room)
      if (first[room->tensor] <= last[p]) place.region = Region::transient;
  }
}

}  // namespace stowage::offload
