#include "offload/assembly.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "offload/caps.hpp"
#include "offload/residency.hpp"

namespace stowage::offload {
namespace {

using execution::Lane;
using execution::Plan;
using execution::Program;
using execution::Step;

/// Every group that communicates has a queue of its own: a sum of gradients must not stand before a
/// layer's exchange.
std::string queue_name(Lane lane, const execution::Op* op) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::comm:
      return op != nullptr && op->communication ? "comm " + op->communication->group : "comm";
    case Lane::d2h:
      return "d2h";
    case Lane::h2d:
      return "h2d";
  }
  return "?";
}

class Assembler {
 public:
  Assembler(const Program& program, const execution::PersistentLayout& layout,
            const GradientMemoryReuse& reuse, Plan& plan)
      : program_(program),
        plan_(plan),
        residency_(program, layout, reuse, plan),
        guard_(program, plan) {
    queue_of(Lane::compute);  // queue 0
    for (const execution::Op& op : program.ops()) op_queues_.push_back(queue_of(op.lane, &op));
  }

  /// Notes where windows are loaded, which may be in an earlier section than they are used.
  void arrange_windows(const std::vector<SectionSchedule>& sections) {
    for (const SectionSchedule& section : sections) {
      loads_.emplace_back(section.timeline.runs.size());
      windows_.emplace_back(section.timeline.runs.size());
      released_.emplace_back(section.timeline.runs.size());
    }
    for (std::size_t s = 0; s < sections.size(); ++s)
      for (const StateWindow& window : sections[s].windows) {
        const std::size_t index = stays_.size();
        stays_.push_back({&window});
        if (window.stays_from < 0)
          loads_[static_cast<std::size_t>(window.load.section)]
                [static_cast<std::size_t>(window.load.run)]
                    .push_back(index);
        windows_[s][static_cast<std::size_t>(window.run)].push_back(index);
        if (!window.carried) continue;
        const auto section = static_cast<std::size_t>(window.carried->section);
        stays_[index].device = residency_.window(window.tensor, window.first, window.bytes);
        released_[section][static_cast<std::size_t>(window.carried->run)].push_back(
            stays_[index].device);
      }
  }

  void add_section(std::size_t index, SectionSchedule& section, int repeat) {
    const int begin = static_cast<int>(plan_.steps.size());
    const std::vector<Run>& runs = section.timeline.runs;
    arrange(section.copies, runs.size());
    section.steps.clear();
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const Calls& calls = calls_[r];
      release(calls.released);
      if (const std::vector<int>& places = released_[index][r]; !places.empty())
        add(Step::What::mark, queue_of(Lane::compute)).places = places;
      for (const std::size_t v : calls.back) bring_back(section.copies[v], issued_[v]);
      for (const std::size_t w : loads_[index][r]) load(stays_[w]);
      for (const std::size_t v : calls.needed) guard_.needed(issued_[v].out, issued_[v].back);
      std::vector<int> windows;
      for (const std::size_t w : windows_[index][r]) {
        stay(stays_[w]);
        guard_.needed(-1, stays_[w].loaded);
        windows.push_back(stays_[w].device);
      }
      const execution::Op& op = program_.ops()[runs[r].op];
      if (op.lane == Lane::compute) guard_.before_compute();
      section.steps.push_back(static_cast<int>(plan_.steps.size()));
      Step& step = add(runs[r].again ? Step::What::rerun : Step::What::run, op_queues_[runs[r].op]);
      step.op = runs[r].op;
      step.places = residency_.bind(op, runs[r].again, windows);
      for (const std::size_t v : calls.out) send_out(section.copies[v], issued_[v]);
      for (const std::size_t w : windows_[index][r]) write_back(stays_[w]);
    }
    guard_.end_of_section();
    plan_.sections.push_back({begin, static_cast<int>(plan_.steps.size()), repeat});
  }

  /// The write-backs that are carried, in the order of their ops, behind the join.
  void add_carried() {
    bool joined = false;
    for (const Stay& stay : stays_) {
      if (!stay.window->carried) continue;
      if (!joined) add(Step::What::mark, queue_of(Lane::compute));
      joined = true;
      add(Step::What::copy_out, queue_of(Lane::d2h)).places = {stay.device, stay.home};
    }
    plan_.sections.back().end = static_cast<int>(plan_.steps.size());
  }

 private:
  /// The copies to which something happens at one run, in the order in which it happens.
  struct Calls {
    std::vector<std::size_t> out, released, back, needed;
  };
  /// Places and steps of one copy out and back.
  struct Issued {
    int first = -1;
    int host = -1;
    int out = -1;
    int back = -1;
  };

  /// A window with its places and the step of its load.
  struct Stay {
    const StateWindow* window;
    int home = -1;
    int device = -1;
    int loaded = -1;
  };

  int queue_of(Lane lane, const execution::Op* op = nullptr) {
    const auto [queue, added] =
        queues_.emplace(queue_name(lane, op), static_cast<int>(plan_.queues.size()));
    if (added) plan_.queues.push_back({queue->first, lane});
    return queue->second;
  }

  Step& add(Step::What what, int queue) {
    Step step;
    step.what = what;
    step.queue = queue;
    plan_.steps.push_back(std::move(step));
    return plan_.steps.back();
  }
  int last_step() const { return static_cast<int>(plan_.steps.size()) - 1; }

  void arrange(const std::vector<OffloadCopy>& copies, std::size_t runs) {
    calls_.assign(runs + 1, {});
    issued_.assign(copies.size(), {});
    const auto at = [&](int run) -> Calls& { return calls_[run]; };
    for (std::size_t v = 0; v < copies.size(); ++v) {
      at(copies[v].written).out.push_back(v);
      at(copies[v].released).released.push_back(v);
      at(copies[v].back).back.push_back(v);
      at(copies[v].needed).needed.push_back(v);
    }
    for (Calls& calls : calls_)
      std::stable_sort(calls.back.begin(), calls.back.end(), [&](std::size_t a, std::size_t b) {
        return copies[a].needed < copies[b].needed;
      });
  }

  void send_out(const OffloadCopy& copy, Issued& issued) {
    issued.first = residency_.place(copy.tensor, copy.buffer);
    issued.host = residency_.host_place(copy.tensor, copy.buffer);
    Step& step = add(Step::What::copy_out, queue_of(Lane::d2h));
    step.places = {issued.first, issued.host};
    count_rows(step, copy);
    issued.out = last_step();
    guard_.left();
  }

  void count_rows(Step& step, const OffloadCopy& copy) {
    const execution::TensorInfo& info = program_.info(copy.tensor);
    if (info.counts_rows()) step.places.push_back(residency_.place(info.rows.count, 0));
  }

  void release(const std::vector<std::size_t>& which) {
    if (which.empty()) return;
    std::vector<int>& places = add(Step::What::mark, queue_of(Lane::compute)).places;
    for (const std::size_t v : which) places.push_back(issued_[v].first);
  }

  void bring_back(const OffloadCopy& copy, Issued& issued) {
    const int event = guard_.before_copy_back(copy.bytes);
    Step& step = add(Step::What::copy_in, queue_of(Lane::h2d));
    step.places = {issued.host, residency_.come_back(copy.tensor, copy.buffer)};
    count_rows(step, copy);
    if (event >= 0) step.waits = {event};
    issued.back = last_step();
    guard_.came_back();
  }

  void load(Stay& stay) {
    const StateWindow& window = *stay.window;
    stay.home = residency_.home(window.tensor, window.first, window.bytes);
    if (stay.device < 0) stay.device = residency_.window(window.tensor, window.first, window.bytes);
    if (!window.reads) return;
    const int event = guard_.before_copy_back(window.bytes);
    Step& step = add(Step::What::copy_in, queue_of(Lane::h2d));
    step.places = {stay.home, stay.device};
    if (event >= 0) step.waits = {event};
    stay.loaded = last_step();
    guard_.came_back();
  }

  /// A window in the bytes of an earlier one.
  void stay(Stay& stay) const {
    if (stay.window->stays_from < 0) return;
    const Stay& first = stays_[static_cast<std::size_t>(stay.window->stays_from)];
    stay.home = first.home;
    stay.device = first.device;
  }

  void write_back(const Stay& stay) {
    if (!stay.window->writes || stay.window->carried || !stay.window->writes_back) return;
    add(Step::What::copy_out, queue_of(Lane::d2h)).places = {stay.device, stay.home};
    guard_.left();
  }

  const Program& program_;
  Plan& plan_;
  Residency residency_;
  CapGuard guard_;
  std::map<std::string, int> queues_;  ///< by name
  std::vector<int> op_queues_;         ///< by op
  std::vector<Calls> calls_;           ///< by run
  std::vector<Issued> issued_;         ///< by copy
  std::vector<Stay> stays_;            ///< by window of all sections
  using ByRun = std::vector<std::vector<std::vector<std::size_t>>>;
  ByRun loads_, windows_;  ///< by section and run: the windows loaded there, and used
  /// By section and run: the places that carried copies have left by then.
  std::vector<std::vector<std::vector<int>>> released_;
};

}  // namespace

Plan assemble(const Program& program, const execution::PersistentLayout& layout,
              const GradientMemoryReuse& reuse, const std::vector<execution::Decision>& decisions,
              const execution::CopyCaps& caps, std::vector<SectionSchedule>& sections) {
  Plan plan;
  plan.decisions = decisions;
  plan.caps = caps;
  plan.bytes[static_cast<int>(execution::Region::persistent)] = layout.bytes();
  Assembler assembler(program, layout, reuse, plan);
  assembler.arrange_windows(sections);
  for (std::size_t s = 0; s < sections.size(); ++s)
    assembler.add_section(s, sections[s], program.sections()[s].repeat);
  assembler.add_carried();
  reuse.leave_in_time(plan);
  return plan;
}

}  // namespace stowage::offload
