#include "offload/voyages.hpp"

#include <algorithm>
#include <numeric>

namespace stowage::offload {

using execution::Access;
using execution::Decision;
using execution::Op;
using execution::Program;

namespace {

/// Part of a copy's time by which it should arrive early.
constexpr double kMargin = 0.1;
/// Part of a section's time by which a copy may be issued early where memory allows.
constexpr double kLead = 0.1;

const Op& op_of(const Program& program, const Run& run) { return program.ops()[run.op]; }

/// Indices of voyages in the order in which they are needed.
std::vector<std::size_t> by_need(const std::vector<Voyage>& voyages) {
  std::vector<std::size_t> order(voyages.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return voyages[a].needed < voyages[b].needed;
  });
  return order;
}

/// The first run at or behind `from` that starts at or after `time_s`; the section's end if none.
int first_run_at(const Itinerary& itinerary, double time_s, int from) {
  const auto begin = itinerary.start_s.begin();
  return static_cast<int>(std::lower_bound(begin + from, itinerary.start_s.end() - 1, time_s) -
                          begin);
}

}  // namespace

Itinerary make_itinerary(const Program& program, const Reruns& reruns, int section,
                         const std::vector<Decision>& decisions, const Rates& rates) {
  Itinerary itinerary{with_reruns(program, reruns, section, decisions), {}};
  double now_s = 0;
  for (const Run& run : itinerary.runs) {
    itinerary.start_s.push_back(now_s);
    if (op_of(program, run).lane == execution::Lane::compute)
      now_s += rates.time_s(program, run.op);
  }
  itinerary.start_s.push_back(now_s);
  return itinerary;
}

std::vector<Voyage> find_voyages(const Program& program, const std::vector<Cargo>& cargo,
                                 const std::vector<Decision>& decisions, std::size_t min_bytes,
                                 int section, const Itinerary& itinerary) {
  std::vector<int> run_of(program.ops().size(), -1);
  std::vector<int> needed(program.tensors().size(), -1);
  const std::vector<char> backward = backward_ops(program);
  for (std::size_t r = 0; r < itinerary.runs.size(); ++r) {
    const Run& run = itinerary.runs[r];
    if (!run.again) run_of[run.op] = static_cast<int>(r);
    if (!run.again && !backward[run.op]) continue;
    for (const execution::Use& use : op_of(program, run).uses)
      if (int& first = needed[use.tensor.id]; first < 0 && use.access != Access::write)
        first = static_cast<int>(r);
  }
  std::vector<Voyage> voyages;
  for (const Cargo& item : cargo) {
    const int id = item.tensor.id;
    if (item.section != section || decisions[id] != Decision::offload) continue;
    const auto& buffers = program.info(item.tensor).buffers;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      if (buffers[b].bytes() < min_bytes || buffers[b].bytes() == 0) continue;
      Voyage voyage;
      voyage.tensor = item.tensor;
      voyage.buffer = static_cast<int>(b);
      voyage.bytes = buffers[b].bytes();
      voyage.moved = program.info(item.tensor).moved_bytes(static_cast<int>(b));
      voyage.written = run_of[item.written];
      voyage.last_forward = run_of[item.last_forward];
      voyage.needed = needed[id];
      voyages.push_back(voyage);
    }
  }
  return voyages;
}

double schedule(std::vector<Voyage>& voyages, const Itinerary& itinerary, const Rates& rates) {
  const auto start = [&](int run) { return itinerary.start_s[run]; };
  double free_s = 0;
  for (Voyage& v : voyages) {
    v.out_end_s = std::max(free_s, start(v.written + 1)) + rates.d2h_s(v.moved);
    free_s = v.out_end_s;
  }
  const std::vector<std::size_t> order = by_need(voyages);
  const double slow = rates.duplex_slowdown();
  double latest_s = itinerary.start_s.back();
  for (std::size_t i = order.size(); i-- > 0;) {
    Voyage& v = voyages[order[i]];
    latest_s = std::min(latest_s, start(v.needed)) - rates.h2d_s(v.moved) * slow * (1 + kMargin);
    v.back_begin_s = latest_s;
  }
  double waited_s = 0;
  free_s = 0;
  int previous = 0;
  for (const std::size_t i : order) {
    Voyage& v = voyages[i];
    v.back_begin_s = std::max({v.back_begin_s, free_s, v.out_end_s});
    free_s = v.back_begin_s + rates.h2d_s(v.moved) * slow;
    waited_s = std::max(waited_s, free_s - start(v.needed));
    const int from = std::max(v.written, v.last_forward) + 1;
    v.released = std::min(first_run_at(itinerary, v.out_end_s, from), v.needed);
    const int after = first_run_at(itinerary, v.back_begin_s, 0);
    const bool exact =
        after < static_cast<int>(itinerary.runs.size()) && start(after) <= v.back_begin_s;
    v.back = std::clamp(exact ? after : after - 1, std::max(v.released, previous), v.needed);
    previous = v.back;
  }
  return waited_s;
}

double travel_time_s(const std::vector<Voyage>& voyages, const Itinerary& itinerary,
                     const Rates& rates) {
  struct Calls {
    std::vector<std::size_t> out, released, back, needed;
  };
  std::vector<Calls> calls(itinerary.runs.size() + 1);
  const auto at = [&](int run) -> Calls& { return calls[run]; };
  for (const std::size_t v : by_need(voyages)) {
    at(voyages[v].written).out.push_back(v);
    at(voyages[v].released).released.push_back(v);
    at(voyages[v].back).back.push_back(v);
    at(voyages[v].needed).needed.push_back(v);
  }
  for (Calls& call : calls) std::sort(call.out.begin(), call.out.end());
  std::vector<double> out_end_s(voyages.size(), 0), back_end_s(voyages.size(), 0);
  double now_s = 0, d2h_free_s = 0, h2d_free_s = 0;
  for (std::size_t r = 0; r < itinerary.runs.size(); ++r) {
    for (const std::size_t v : calls[r].released) now_s = std::max(now_s, out_end_s[v]);
    for (const std::size_t v : calls[r].back)
      back_end_s[v] = h2d_free_s = std::max({h2d_free_s, now_s, out_end_s[v]}) +
                                   rates.h2d_s(voyages[v].moved) * rates.duplex_slowdown();
    for (const std::size_t v : calls[r].needed) now_s = std::max(now_s, back_end_s[v]);
    now_s += itinerary.start_s[r + 1] - itinerary.start_s[r];
    for (const std::size_t v : calls[r].out)
      out_end_s[v] = d2h_free_s = std::max(d2h_free_s, now_s) + rates.d2h_s(voyages[v].moved);
  }
  return now_s;
}

void squeeze(std::vector<Voyage>& voyages, std::vector<std::size_t>& live, std::size_t limit,
             std::size_t alignment) {
  for (std::size_t r = 0; r < live.size(); ++r)
    for (Voyage& v : voyages) {
      if (live[r] <= limit) break;
      const auto run = static_cast<int>(r);
      if (run <= std::max(v.written, v.last_forward) || run >= v.released) continue;
      for (int i = run; i < v.released; ++i) live[i] -= execution::align_up(v.bytes, alignment);
      v.released = run;
    }
}

void hoist(std::vector<Voyage>& voyages, const Itinerary& itinerary, std::vector<std::size_t>& live,
           std::size_t limit, std::size_t alignment) {
  const double lead_s = kLead * itinerary.start_s.back();
  int previous = 0;
  for (const std::size_t i : by_need(voyages)) {
    Voyage& v = voyages[i];
    const std::size_t bytes = execution::align_up(v.bytes, alignment);
    const int lowest =
        std::max({previous, v.released, first_run_at(itinerary, v.back_begin_s - lead_s, 0)});
    while (v.back > lowest && live[v.back - 1] + bytes <= limit) live[--v.back] += bytes;
    previous = v.back;
  }
}

}  // namespace stowage::offload
