#include "offload/offload_copies.hpp"

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

/// Indices of copies in the order in which they are needed.
std::vector<std::size_t> by_need(const std::vector<OffloadCopy>& copies) {
  std::vector<std::size_t> order(copies.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return copies[a].needed < copies[b].needed;
  });
  return order;
}

/// The first run at or behind `from` that starts at or after `time_s`; the section's end if none.
int first_run_at(const ComputeTimeline& timeline, double time_s, int from) {
  const auto begin = timeline.start_s.begin();
  return static_cast<int>(std::lower_bound(begin + from, timeline.start_s.end() - 1, time_s) -
                          begin);
}

}  // namespace

OpFacts::OpFacts(const Program& program, const Rates& rates) : backward(backward_ops(program)) {
  for (std::size_t op = 0; op < program.ops().size(); ++op)
    time_s.push_back(rates.time_s(program, static_cast<int>(op)));
}

ComputeTimeline make_timeline(const Program& program, const Reruns& reruns, int section,
                              const std::vector<Decision>& decisions, const OpFacts& ops) {
  ComputeTimeline timeline{with_reruns(program, reruns, section, decisions, ops.backward), {}};
  double now_s = 0;
  for (const Run& run : timeline.runs) {
    timeline.start_s.push_back(now_s);
    if (op_of(program, run).lane == execution::Lane::compute) now_s += ops.time_s[run.op];
  }
  timeline.start_s.push_back(now_s);
  return timeline;
}

std::vector<OffloadCopy> find_offload_copies(const Program& program,
                                             const std::vector<SavedTensor>& saved,
                                             const std::vector<Decision>& decisions,
                                             std::size_t min_bytes, int section,
                                             const ComputeTimeline& timeline, const OpFacts& ops) {
  std::vector<int> run_of(program.ops().size(), -1);
  std::vector<int> needed(program.tensors().size(), -1);
  for (std::size_t r = 0; r < timeline.runs.size(); ++r) {
    const Run& run = timeline.runs[r];
    if (!run.again) run_of[run.op] = static_cast<int>(r);
    if (!run.again && !ops.backward[run.op]) continue;
    for (const execution::Use& use : op_of(program, run).uses)
      if (int& first = needed[use.tensor.id]; first < 0 && use.access != Access::write)
        first = static_cast<int>(r);
  }
  std::vector<OffloadCopy> copies;
  for (const SavedTensor& item : saved) {
    const int id = item.tensor.id;
    if (item.section != section || decisions[id] != Decision::offload) continue;
    const auto& buffers = program.info(item.tensor).buffers;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      if (buffers[b].bytes() < min_bytes || buffers[b].bytes() == 0) continue;
      OffloadCopy copy;
      copy.tensor = item.tensor;
      copy.buffer = static_cast<int>(b);
      copy.bytes = buffers[b].bytes();
      copy.moved = program.info(item.tensor).moved_bytes(static_cast<int>(b));
      copy.written = run_of[item.written];
      copy.last_forward = run_of[item.last_forward];
      copy.needed = needed[id];
      copies.push_back(copy);
    }
  }
  return copies;
}

double schedule(std::vector<OffloadCopy>& copies, const ComputeTimeline& timeline,
                const Rates& rates) {
  const auto start = [&](int run) { return timeline.start_s[run]; };
  double free_s = 0;
  for (OffloadCopy& v : copies) {
    v.out_end_s = std::max(free_s, start(v.written + 1)) + rates.d2h_s(v.moved);
    free_s = v.out_end_s;
  }
  const std::vector<std::size_t> order = by_need(copies);
  const double slow = rates.duplex_slowdown();
  double latest_s = timeline.start_s.back();
  for (std::size_t i = order.size(); i-- > 0;) {
    OffloadCopy& v = copies[order[i]];
    latest_s = std::min(latest_s, start(v.needed)) - rates.h2d_s(v.moved) * slow * (1 + kMargin);
    v.back_begin_s = latest_s;
  }
  double waited_s = 0;
  free_s = 0;
  int previous = 0;
  for (const std::size_t i : order) {
    OffloadCopy& v = copies[i];
    v.back_begin_s = std::max({v.back_begin_s, free_s, v.out_end_s});
    free_s = v.back_begin_s + rates.h2d_s(v.moved) * slow;
    waited_s = std::max(waited_s, free_s - start(v.needed));
    const int from = std::max(v.written, v.last_forward) + 1;
    v.released = std::min(first_run_at(timeline, v.out_end_s, from), v.needed);
    const int after = first_run_at(timeline, v.back_begin_s, 0);
    const bool exact =
        after < static_cast<int>(timeline.runs.size()) && start(after) <= v.back_begin_s;
    v.back = std::clamp(exact ? after : after - 1, std::max(v.released, previous), v.needed);
    previous = v.back;
  }
  return waited_s;
}

double section_time_s(const std::vector<OffloadCopy>& copies, const ComputeTimeline& timeline,
                      const Rates& rates) {
  struct Calls {
    std::vector<std::size_t> out, released, back, needed;
  };
  std::vector<Calls> calls(timeline.runs.size() + 1);
  const auto at = [&](int run) -> Calls& { return calls[run]; };
  for (const std::size_t v : by_need(copies)) {
    at(copies[v].written).out.push_back(v);
    at(copies[v].released).released.push_back(v);
    at(copies[v].back).back.push_back(v);
    at(copies[v].needed).needed.push_back(v);
  }
  for (Calls& call : calls) std::sort(call.out.begin(), call.out.end());
  std::vector<double> out_end_s(copies.size(), 0), back_end_s(copies.size(), 0);
  double now_s = 0, d2h_free_s = 0, h2d_free_s = 0;
  for (std::size_t r = 0; r < timeline.runs.size(); ++r) {
    for (const std::size_t v : calls[r].released) now_s = std::max(now_s, out_end_s[v]);
    for (const std::size_t v : calls[r].back)
      back_end_s[v] = h2d_free_s = std::max({h2d_free_s, now_s, out_end_s[v]}) +
                                   rates.h2d_s(copies[v].moved) * rates.duplex_slowdown();
    for (const std::size_t v : calls[r].needed) now_s = std::max(now_s, back_end_s[v]);
    now_s += timeline.start_s[r + 1] - timeline.start_s[r];
    for (const std::size_t v : calls[r].out)
      out_end_s[v] = d2h_free_s = std::max(d2h_free_s, now_s) + rates.d2h_s(copies[v].moved);
  }
  return now_s;
}

void evict_early(std::vector<OffloadCopy>& copies, std::vector<std::size_t>& live,
                 std::size_t limit, std::size_t alignment) {
  for (std::size_t r = 0; r < live.size(); ++r)
    for (OffloadCopy& v : copies) {
      if (live[r] <= limit) break;
      const auto run = static_cast<int>(r);
      if (run <= std::max(v.written, v.last_forward) || run >= v.released) continue;
      for (int i = run; i < v.released; ++i) live[i] -= execution::align_up(v.bytes, alignment);
      v.released = run;
    }
}

void prefetch_early(std::vector<OffloadCopy>& copies, const ComputeTimeline& timeline,
                    std::vector<std::size_t>& live, std::size_t limit, std::size_t alignment) {
  const double lead_s = kLead * timeline.start_s.back();
  int previous = 0;
  for (const std::size_t i : by_need(copies)) {
    OffloadCopy& v = copies[i];
    const std::size_t bytes = execution::align_up(v.bytes, alignment);
    const int lowest =
        std::max({previous, v.released, first_run_at(timeline, v.back_begin_s - lead_s, 0)});
    while (v.back > lowest && live[v.back - 1] + bytes <= limit) live[--v.back] += bytes;
    previous = v.back;
  }
}

}  // namespace stowage::offload
