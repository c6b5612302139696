#include "offload/bins.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "execution/error.hpp"
#include "execution/plan_shape.hpp"
#include "offload/conflicts.hpp"

namespace stowage::offload {
namespace {

using execution::Lane;
using execution::Plan;
using execution::Program;
using execution::Scope;
using execution::Step;
using execution::StepRange;
using Mode = GraphOptions::Mode;

constexpr int kNone = -1;

template <class T>
T& at(std::vector<T>& list, int index) {
  return list[index];
}
template <class T>
const T& at(const std::vector<T>& list, int index) {
  return list[index];
}

/// Compute steps stay in their order and say where graphs begin and end; the others are sorted in.
class Sorter {
 public:
  Sorter(const Program& program, const Plan& plan, const GraphOptions& options)
      : program_(program),
        plan_(plan),
        options_(options),
        conflicts_(program, plan),
        section_(plan.steps.size()) {
    for (int s = 0; s < static_cast<int>(plan.sections.size()); ++s)
      for (int i = at(plan.sections, s).begin; i < at(plan.sections, s).end; ++i)
        at(section_, i) = s;
    bins_.of.assign(plan.steps.size(), 0);
  }

  Bins run() {
    group_compute();
    before_ = nearest_compute(0, size(), 1);
    after_ = nearest_compute(size() - 1, -1, -1);
    limit_bins();
    for (int i = 0; i < size(); ++i)
      if (!is_compute(i)) at(bins_.of, i) = choose(i);
    return std::move(bins_);
  }

 private:
  int size() const { return static_cast<int>(plan_.steps.size()); }
  const Step& step(int index) const { return at(plan_.steps, index); }
  Lane lane(int index) const { return at(plan_.queues, step(index).queue).lane; }
  bool is_compute(int index) const {
    return step(index).what != Step::What::mark && lane(index) == Lane::compute;
  }
  bool overlapping() const { return options_.copies == GraphOptions::Copies::overlapping; }
  bool is_ring(int index, Lane of) const {
    return uses_ring(program_, step(index)) && lane(index) == of;
  }

  /// The outermost selected scope around an op.
  int selected_scope(int op) const {
    int found = kNone;
    for (int s = at(program_.ops(), op).scope; s >= 0; s = at(program_.scopes(), s).parent)
      if (std::find(options_.scopes.begin(), options_.scopes.end(),
                    at(program_.scopes(), s).kind) != options_.scopes.end())
        found = s;
    return found;
  }

  /// What the steps of one graph have in common: their scope, or in mode step their first section.
  int key(int index) const {
    return options_.mode == Mode::step ? first_section(at(section_, index))
                                       : selected_scope(step(index).op);
  }

  /// Sections that run once, one after the other, go into one graph of the step, unless an input or
  /// an output is copied between them.
  int first_section(int section) const {
    for (; section > 0; --section) {
      const StepRange& range = at(plan_.sections, section);
      const StepRange& earlier = at(plan_.sections, section - 1);
      if (range.repeat > 1 || earlier.repeat > 1 || has_ring(range, Lane::h2d) ||
          has_ring(earlier, Lane::d2h))
        break;
    }
    return section;
  }
  bool has_ring(const StepRange& range, Lane of) const {
    for (int i = range.begin; i < range.end; ++i)
      if (is_ring(i, of)) return true;
    return false;
  }

  /// Runs of compute steps with one key are the graphs.
  void group_compute() {
    const std::vector<int> keys = compute_keys();
    int last = kNone;
    for (int i = 0; i < size(); ++i) {
      if (!is_compute(i)) continue;
      if (at(keys, i) != kNone && at(keys, i) != last) {
        bins_.graphs.push_back(name_of(at(keys, i)));
        keys_.push_back(at(keys, i));
      }
      last = at(keys, i);
      const int graphs = static_cast<int>(bins_.graphs.size());
      at(bins_.of, i) = last == kNone ? 2 * graphs : 2 * graphs - 1;
    }
  }

  std::vector<int> compute_keys() const {
    std::vector<int> keys(plan_.steps.size(), kNone);
    int next = kNone;
    for (int i = size(); i-- > 0;) {
      if (!is_compute(i)) continue;
      const bool follows =
          step(i).what == Step::What::rerun && next != kNone && same_section(next, i);
      at(keys, i) = follows ? at(keys, next) : key(i);
      next = i;
    }
    return keys;
  }

  std::string name_of(int key) const {
    if (options_.mode == Mode::step) return at(program_.sections(), key).name;
    const Scope& scope = at(program_.scopes(), key);
    int layer = scope.layer;
    for (int s = key; layer < 0 && s >= 0; s = at(program_.scopes(), s).parent)
      layer = at(program_.scopes(), s).layer;
    return fmt::format("layer{} {}{} mb{}", layer, scope.kind, scope.backward ? " backward" : "",
                       scope.microbatch);
  }

  bool same_section(int a, int b) const {
    const int sa = at(section_, a);
    const int sb = at(section_, b);
    return sa == sb || (options_.mode == Mode::step && first_section(sa) == first_section(sb));
  }

  /// By step: the nearest compute step of its section, from one end to the other.
  std::vector<int> nearest_compute(int from, int to, int by) const {
    std::vector<int> nearest(plan_.steps.size(), kNone);
    int last = kNone;
    for (int i = from; i != to; i += by) {
      if (is_compute(i)) last = i;
      if (last != kNone && same_section(last, i)) at(nearest, i) = last;
    }
    return nearest;
  }
  int bin_of(int step) const { return step == kNone ? kNone : at(bins_.of, step); }

  /// No step may come after the compute steps that need it, by whatever way.
  void limit_bins() {
    limits_.assign(plan_.steps.size(), std::numeric_limits<int>::max());
    for (int i = size(); i-- > 0;) {
      if (is_compute(i))
        at(limits_, i) = at(bins_.of, i);
      else
        conflicts_.for_each_after(
            i, [&](int j) { at(limits_, i) = std::min(at(limits_, i), at(limits_, j)); });
    }
  }

  int choose(int index) {
    int least = 0;
    conflicts_.for_each_before(index, [&](int j) { least = std::max(least, at(bins_.of, j)); });
    const int most = at(limits_, index);
    int bin = std::clamp(wanted(index), least, most);
    if (Bins::is_graph(bin) && uses_ring(program_, step(index))) bin += bin < most ? 1 : -1;
    STOWAGE_ASSERT(bin >= least, "{} can neither precede nor follow graph {}",
                   describe(program_, step(index)), at(bins_.graphs, bin / 2));
    return bin;
  }

  int wanted(int index) const {
    const int before = bin_of(at(before_, index));
    const int after = bin_of(at(after_, index));
    if (uses_ring(program_, step(index))) return between(index, before, after);
    const bool follows = before != kNone && Bins::is_graph(before);
    const bool leads = after != kNone && Bins::is_graph(after);
    if (options_.mode == Mode::step)
      return follows ? before : leads ? after : between(index, before, after);
    switch (step(index).what) {
      case Step::What::copy_out:
        if (!follows) break;
        if (options_.delay_until_graph) return delayed(index, before);
        return overlapping() ? before + 1 : before;
      case Step::What::copy_in:
      case Step::What::mark:
        if (leads && overlapping() && step(index).what == Step::What::copy_in) return after - 1;
        if (leads) return after;
        if (follows && after == kNone) return before;
        break;
      case Step::What::run:
      case Step::What::rerun:
        const int scope = selected_scope(step(index).op);
        if (scope == kNone) break;
        if (follows && at(keys_, before / 2) == scope) return before;
        if (leads && at(keys_, after / 2) == scope) return after;
    }
    return between(index, before, after);
  }

  /// Outside of the graphs: where it is, or beside the graph that it lies in.
  int between(int index, int before, int after) const {
    if (before == after && before != kNone && Bins::is_graph(before))
      return is_ring(index, Lane::h2d) ? before - 1 : before + 1;
    if (before != kNone) return behind(before);
    if (after != kNone) return after - (Bins::is_graph(after) ? 1 : 0);
    int last = kNone;  // a section without compute steps
    for (int i = 0; i < index; ++i)
      if (is_compute(i)) last = i;
    return last == kNone ? 0 : behind(bin_of(last));
  }
  static int behind(int bin) { return bin + (Bins::is_graph(bin) ? 1 : 0); }

  /// Behind the next graph of the section, or behind its last one, if nothing needs it earlier.
  int delayed(int index, int home) const {
    int bin = home + 1;
    for (int i = index; i < size() && at(section_, i) == at(section_, index); ++i)
      if (is_compute(i) && at(bins_.of, i) > home + 1) {
        bin = behind(at(bins_.of, i));
        break;
      }
    const int most = at(limits_, index);
    if (bin > most) bin = Bins::is_graph(most) ? most - 1 : most;
    return bin > home ? bin : home;
  }

  const Program& program_;
  const Plan& plan_;
  const GraphOptions& options_;
  Conflicts conflicts_;
  Bins bins_;
  std::vector<int> section_;         ///< by step
  std::vector<int> keys_;            ///< by graph
  std::vector<int> before_, after_;  ///< by step: the compute steps next to it
  std::vector<int> limits_;          ///< by step: the last bin that it may be in
};

}  // namespace

Bins sort_into_bins(const Program& program, const Plan& plan, const GraphOptions& options) {
  return Sorter(program, plan, options).run();
}

}  // namespace stowage::offload
