#include "offload/assembly.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "offload/caps.hpp"
#include "offload/stays.hpp"

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
  Assembler(const Program& program, const execution::PersistentLayout& layout, const Berths& berths,
            Plan& plan)
      : program_(program),
        plan_(plan),
        stays_(program, layout, berths, plan),
        guard_(program, plan) {
    queue_of(Lane::compute);  // queue 0
    for (const execution::Op& op : program.ops()) queue_of(op.lane, &op);
  }

  void section(Leg& leg, int repeat) {
    const int begin = static_cast<int>(plan_.steps.size());
    const std::vector<Run>& runs = leg.itinerary.runs;
    arrange(leg.voyages, runs.size());
    leg.steps.clear();
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const Calls& calls = calls_[r];
      release(calls.released);
      for (const std::size_t v : calls.back) bring_back(leg.voyages[v], copies_[v]);
      for (const std::size_t v : calls.needed) guard_.needed(copies_[v].out, copies_[v].back);
      const execution::Op& op = program_.ops()[runs[r].op];
      if (op.lane == Lane::compute) guard_.before_compute();
      leg.steps.push_back(static_cast<int>(plan_.steps.size()));
      Step& step = add(runs[r].again ? Step::What::rerun : Step::What::run, op.lane, &op);
      step.op = runs[r].op;
      step.places = stays_.bind(op, runs[r].again);
      for (const std::size_t v : calls.out) send_out(leg.voyages[v], copies_[v]);
    }
    guard_.end_of_section();
    plan_.sections.push_back({begin, static_cast<int>(plan_.steps.size()), repeat});
  }

 private:
  /// The voyages to which something happens at one run, in the order in which it happens.
  struct Calls {
    std::vector<std::size_t> out, released, back, needed;
  };
  /// Places and steps of one voyage.
  struct Copies {
    int first = -1;
    int host = -1;
    int out = -1;
    int back = -1;
  };

  int queue_of(Lane lane, const execution::Op* op = nullptr) {
    const auto [queue, added] =
        queues_.emplace(queue_name(lane, op), static_cast<int>(plan_.queues.size()));
    if (added) plan_.queues.push_back({queue->first, lane});
    return queue->second;
  }

  Step& add(Step::What what, Lane lane, const execution::Op* op = nullptr) {
    Step step;
    step.what = what;
    step.queue = queue_of(lane, op);
    plan_.steps.push_back(std::move(step));
    return plan_.steps.back();
  }
  int last_step() const { return static_cast<int>(plan_.steps.size()) - 1; }

  void arrange(const std::vector<Voyage>& voyages, std::size_t runs) {
    calls_.assign(runs + 1, {});
    copies_.assign(voyages.size(), {});
    const auto at = [&](int run) -> Calls& { return calls_[run]; };
    for (std::size_t v = 0; v < voyages.size(); ++v) {
      at(voyages[v].written).out.push_back(v);
      at(voyages[v].released).released.push_back(v);
      at(voyages[v].back).back.push_back(v);
      at(voyages[v].needed).needed.push_back(v);
    }
    for (Calls& calls : calls_)
      std::stable_sort(calls.back.begin(), calls.back.end(), [&](std::size_t a, std::size_t b) {
        return voyages[a].needed < voyages[b].needed;
      });
  }

  void send_out(const Voyage& voyage, Copies& copies) {
    copies.first = stays_.place(voyage.tensor, voyage.buffer);
    copies.host = stays_.host_place(voyage.tensor, voyage.buffer);
    Step& step = add(Step::What::copy_out, Lane::d2h);
    step.places = {copies.first, copies.host};
    count_rows(step, voyage);
    copies.out = last_step();
    guard_.left();
  }

  void count_rows(Step& copy, const Voyage& voyage) {
    const execution::TensorInfo& info = program_.info(voyage.tensor);
    if (info.counts_rows()) copy.places.push_back(stays_.place(info.rows.count, 0));
  }

  void release(const std::vector<std::size_t>& which) {
    if (which.empty()) return;
    std::vector<int>& places = add(Step::What::mark, Lane::compute).places;
    for (const std::size_t v : which) places.push_back(copies_[v].first);
  }

  void bring_back(const Voyage& voyage, Copies& copies) {
    const int event = guard_.before_copy_back(voyage.bytes);
    Step& step = add(Step::What::copy_in, Lane::h2d);
    step.places = {copies.host, stays_.come_back(voyage.tensor, voyage.buffer)};
    count_rows(step, voyage);
    if (event >= 0) step.waits = {event};
    copies.back = last_step();
    guard_.came_back();
  }

  const Program& program_;
  Plan& plan_;
  Stays stays_;
  CapGuard guard_;
  std::map<std::string, int> queues_;  ///< by name
  std::vector<Calls> calls_;           ///< by run
  std::vector<Copies> copies_;         ///< by voyage
};

}  // namespace

Plan assemble(const Program& program, const execution::PersistentLayout& layout,
              const Berths& berths, const std::vector<execution::Decision>& decisions,
              const execution::CopyCaps& caps, std::vector<Leg>& legs) {
  Plan plan;
  plan.decisions = decisions;
  plan.caps = caps;
  plan.bytes[static_cast<int>(execution::Region::persistent)] = layout.bytes();
  Assembler assembler(program, layout, berths, plan);
  for (std::size_t s = 0; s < legs.size(); ++s)
    assembler.section(legs[s], program.sections()[s].repeat);
  berths.leave_in_time(plan);
  return plan;
}

}  // namespace stowage::offload
