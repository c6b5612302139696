#include "offload/summary.hpp"

#include <algorithm>
#include <map>

#include "execution/plan_shape.hpp"
#include "offload/gradient_memory_reuse.hpp"
#include "offload/saved_tensors.hpp"

namespace stowage::offload {

using execution::Decision;
using execution::Plan;
using execution::Program;
using execution::Step;

namespace {

class Summary {
 public:
  Summary(const Program& program, const Plan& plan, const Prediction& prediction)
      : program_(program),
        plan_(plan),
        prediction_(prediction),
        recorders_(recorders(plan)),
        first_carried_(execution::first_carried(plan)) {}

  void add_tensors(const Choice& choice) {
    for (const SavedTensor& saved : find_saved_tensors(program_)) {
      const execution::TensorInfo& info = program_.info(saved.tensor);
      const int id = saved.tensor.id;
      const int repeat = program_.sections()[saved.section].repeat;
      ModuleSummary& module = at(info.module);
      const std::size_t bytes = info.bytes() * static_cast<std::size_t>(repeat);
      module.bytes += bytes;
      if (choice.decisions[id] == Decision::recompute) module.recomputed += bytes;
      if (std::find(module.reasons.begin(), module.reasons.end(), choice.reasons[id]) ==
          module.reasons.end())
        module.reasons.push_back(choice.reasons[id]);
    }
  }

  void add_gradient_memory() {
    for (const execution::Place& place : plan_.places)
      if (in_gradient_memory(program_, place))
        at(program_.info(place.tensor).module).in_gradient_memory += place.bytes;
  }

  void add_steps() {
    for (const execution::StepRange& section : plan_.sections)
      for (int i = section.begin; i < section.end; ++i) {
        const Step& step = plan_.steps[i];
        if (execution::is_copy(step)) add_copy(step, i, section.repeat);
        if (plan_.queues[step.queue].lane == execution::Lane::compute)
          add_wait(step, i, section.repeat);
      }
  }

  std::vector<ModuleSummary> take() { return std::move(modules_); }

 private:
  /// What a place's tensor is summed under: states have no module.
  ModuleSummary& of(const execution::Place& place) {
    const execution::TensorInfo& info = program_.info(place.tensor);
    return at(is_persistent(info.lifetime) ? "states" : info.module);
  }
  ModuleSummary& at(const std::string& module) {
    const auto [found, added] = by_name_.emplace(module, modules_.size());
    if (added) modules_.emplace_back().module = module;
    return modules_[found->second];
  }

  const execution::Place& place_of(const Step& copy) const { return plan_.places[copy.places[0]]; }
  double time_s(int step) const {
    const auto at = static_cast<std::size_t>(step);
    return prediction_.end_s[at] - prediction_.begin_s[at];
  }

  void add_copy(const Step& step, int index, int repeat) {
    const execution::Place& place = place_of(step);
    ModuleSummary& module = of(place);
    if (step.what == Step::What::copy_in) {
      module.h2d_s += repeat * time_s(index);
      return;
    }
    module.copies += repeat;
    const execution::TensorInfo& info = program_.info(place.tensor);
    const auto times = static_cast<std::size_t>(repeat);
    if (is_persistent(info.lifetime)) module.bytes += place.bytes * times;
    module.offloaded += info.counts_rows() && !prediction_.counted_bytes.empty()
                            ? prediction_.counted_bytes[static_cast<std::size_t>(index)]
                            : moved_bytes(program_, place) * times;
    module.d2h_s += repeat * time_s(index);
  }

  /// A wait counts for the copy that ends last among those that hold a step up. Marks take no time,
  /// so that a timed plan needs none for them.
  void add_wait(const Step& step, int index, int repeat) {
    double latest_s = busy_until_s_;
    const Step* latest = nullptr;
    for (const int event : step.waits) {
      const int source = recorders_[event];
      if (source < 0 || (source > index && source < first_carried_)) continue;
      const double end_s = prediction_.end_s[source];
      const Step& other = plan_.steps[source];
      if (!execution::is_copy(other) || end_s <= latest_s) continue;
      latest_s = end_s;
      latest = &other;
    }
    if (latest != nullptr && busy_until_s_ > 0)
      of(place_of(*latest)).waited_s += repeat * (latest_s - busy_until_s_);
    busy_until_s_ = latest_s;
    if (step.what != Step::What::mark) busy_until_s_ = prediction_.end_s[index];
  }

  const Program& program_;
  const Plan& plan_;
  const Prediction& prediction_;
  std::vector<int> recorders_;
  int first_carried_;
  std::vector<ModuleSummary> modules_;
  std::map<std::string, std::size_t> by_name_;
  double busy_until_s_ = 0;  ///< end of the latest compute step
};

}  // namespace

std::vector<ModuleSummary> summarize(const Program& program, const Plan& plan, const Choice& choice,
                                     const Prediction& prediction) {
  Summary summary(program, plan, prediction);
  summary.add_tensors(choice);
  summary.add_gradient_memory();
  summary.add_steps();
  return summary.take();
}

std::size_t bytes_in_gradient_memory(const Program& program, const Plan& plan) {
  std::size_t bytes = 0;
  for (const execution::Place& place : plan.places)
    if (in_gradient_memory(program, place)) bytes += place.bytes;
  return bytes;
}

}  // namespace stowage::offload
