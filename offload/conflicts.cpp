#include "offload/conflicts.hpp"

#include "execution/plan_shape.hpp"

namespace stowage::offload {

using execution::Step;

namespace {

/// The bucket of a part, or the tensor itself.
int whole_of(const execution::Program& program, execution::Tensor tensor) {
  const execution::Tensor whole = program.info(tensor).whole;
  return whole ? whole.id : tensor.id;
}

/// Places of ranges of what has its home on the host, there, by the id of the whole: a bucket and
/// its parts share their bytes.
std::vector<std::vector<int>> homes_of(const execution::Program& program,
                                       const execution::Plan& plan) {
  std::vector<std::vector<int>> homes(program.tensors().size());
  for (std::size_t p = 0; p < plan.places.size(); ++p)
    if (const execution::Place& place = plan.places[p];
        place.region == execution::Region::host &&
        is_persistent(program.info(place.tensor).lifetime))
      homes[whole_of(program, place.tensor)].push_back(static_cast<int>(p));
  return homes;
}

/// Places of the parts of each whole, by tensor id.
std::vector<std::vector<int>> parts_of(const execution::Program& program,
                                       const execution::Plan& plan) {
  std::vector<std::vector<int>> parts(program.tensors().size());
  for (std::size_t p = 0; p < plan.places.size(); ++p)
    if (const execution::Tensor whole = program.info(plan.places[p].tensor).whole)
      parts[whole.id].push_back(static_cast<int>(p));
  return parts;
}

}  // namespace

Conflicts::Conflicts(const execution::Program& program, const execution::Plan& plan)
    : by_place_(plan.places.size() + static_cast<std::size_t>(plan.events)),
      uses_(plan.steps.size()) {
  const std::vector<std::vector<int>> parts = parts_of(program, plan);
  const std::vector<std::vector<int>> homes = homes_of(program, plan);
  const auto note_copied = [&](int step, int at, bool writes) {
    const execution::Place& place = plan.places[at];
    note(step, at, writes);
    if (place.region != execution::Region::host) return;
    for (const int other : homes[whole_of(program, place.tensor)])
      if (other != at && plan.places[other].offset < place.end() &&
          plan.places[other].end() > place.offset)
        note(step, other, writes);
  };
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const int index = static_cast<int>(i);
    const auto event = [&](int id) { return static_cast<int>(plan.places.size()) + id; };
    for (const int id : step.waits) note(index, event(id), false);
    if (step.records >= 0) note(index, event(step.records), true);
    switch (step.what) {
      case Step::What::copy_out:
      case Step::What::copy_in:
        for (std::size_t p = 0; p < step.places.size(); ++p)
          note_copied(index, step.places[p], p == 1);
        break;
      case Step::What::mark:
        for (const int place : step.places) note(index, place, false);
        break;
      case Step::What::run:
      case Step::What::rerun:
        for_each_operand(program, program.ops()[step.op], step,
                         [&](const execution::Use& use, int place) {
                           const bool writes = use.access != execution::Access::read;
                           note(index, place, writes);
                           const execution::Range range = program.resolve(use);
                           for (const int part : parts[use.tensor.id]) {
                             const auto& info = program.info(plan.places[part].tensor);
                             if (info.first < range.end &&
                                 info.first + info.buffers.front().elements() > range.begin)
                               note(index, part, writes);
                           }
                         });
    }
  }
}

void Conflicts::note(int step, int place, bool writes) {
  uses_[step].emplace_back(place, writes);
  by_place_[place].push_back({step, writes});
}

}  // namespace stowage::offload
