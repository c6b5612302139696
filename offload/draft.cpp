#include "offload/draft.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "offload/lifetimes.hpp"
#include "offload/state_windows.hpp"

namespace stowage::offload {

using execution::Decision;
using execution::Program;

namespace {

constexpr int kHalvings = 10;

/// Gradient memory is reused for tensors only when there is a device budget.
bool reuses_gradient_memory(const Policy& policy) {
  return policy.kind == Policy::Kind::automatic && policy.device_budget_bytes > 0 &&
         policy.reuse_gradient_memory;
}

/// What a second of copies costs the compute beside it, wherever in the program that is.
double mean_slowdown(const Program& program, const Rates& rates, const OpFacts& ops,
                     const Slowdown& slowdown) {
  double time_s = 0;
  double slowed_s = 0;
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const execution::Op& op = program.ops()[i];
    if (op.lane != execution::Lane::compute || op.only_rerun) continue;
    const double alone_s = ops.time_s[i];
    time_s += alone_s;
    slowed_s += alone_s * (rates.with_copies(program, static_cast<int>(i), slowdown) - 1);
  }
  return time_s > 0 ? slowed_s / time_s : 0;
}

}  // namespace

Drafts::Drafts(const execution::Program& program, const execution::PersistentLayout& layout,
               const Policy& policy, const Rates& rates, std::size_t alignment)
    : program_(program),
      layout_(layout),
      policy_(policy),
      rates_(rates),
      alignment_(alignment),
      saved_tensors_(find_saved_tensors(program)),
      reruns_(program),
      ops_(program, rates),
      d2h_cost_(mean_slowdown(program, rates, ops_, rates.d2h_slowdown)),
      h2d_cost_(mean_slowdown(program, rates, ops_, rates.h2d_slowdown)),
      reuse_(program, layout,
             reuses_gradient_memory(policy) ? tenants() : std::vector<execution::Tensor>{},
             alignment) {}

std::optional<double> Drafts::rerun_s_per_byte(const SavedTensor& item,
                                               std::vector<Decision> decisions) const {
  const std::vector<char> present(program_.tensors().size(), 0);
  decisions[item.tensor.id] = Decision::recompute;
  const auto chain = reruns_.chain(item.tensor, item.first_backward, decisions, present);
  if (!chain) return std::nullopt;
  double time_s = 0;
  for (const int op : *chain) time_s += ops_.time_s[op];
  return time_s / static_cast<double>(program_.info(item.tensor).bytes());
}

/// Tensors that may lie in gradient memory, in the order in which they are placed: those that are
/// dear to compute again, so that cheap bytes are left; of these, the ones that are free again
/// first, which have the least time for copies. A section that repeats adds to gradients, so none
/// of its tensors is among them.
std::vector<execution::Tensor> Drafts::tenants() const {
  struct Tenant {
    execution::Tensor tensor;
    double s_per_byte;
    int first_backward;
    std::size_t bytes;
  };
  const std::vector<Decision> kept(program_.tensors().size(), Decision::keep);
  std::vector<Tenant> all;
  double time_s = 0;
  double bytes = 0;
  for (const SavedTensor& item : saved_tensors_) {
    const execution::TensorInfo& info = program_.info(item.tensor);
    const bool listed =
        std::any_of(policy_.recompute.begin(), policy_.recompute.end(),
                    [&](const ModuleName& name) { return name.covers(info.module); });
    if (listed || program_.sections()[item.section].repeat > 1 ||
        movable_bytes(info, policy_.min_tensor_bytes) == 0)
      continue;
    const auto s_per_byte = rerun_s_per_byte(item, kept);
    all.push_back({item.tensor, s_per_byte.value_or(std::numeric_limits<double>::infinity()),
                   item.first_backward, info.bytes()});
    if (!s_per_byte) continue;
    time_s += *s_per_byte * static_cast<double>(info.bytes());
    bytes += static_cast<double>(info.bytes());
  }
  const double mean = bytes > 0 ? time_s / bytes : 0;
  const auto key = [&](const Tenant& tenant) {
    return std::tuple(tenant.s_per_byte < mean, tenant.first_backward,
                      -static_cast<double>(tenant.bytes));
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Tenant& a, const Tenant& b) { return key(a) < key(b); });
  std::vector<execution::Tensor> result;
  for (const Tenant& tenant : all) result.push_back(tenant.tensor);
  return result;
}

void Drafts::assemble(Draft& draft, const std::vector<Decision>& decisions) const {
  draft.plan =
      offload::assemble(program_, layout_, reuse_, decisions, policy_.caps, draft.sections);
  draft.live = live_bytes_by_step(draft.plan, live_ranges(draft.plan), execution::Region::transient,
                                  alignment_);
  draft.peak = draft.live.empty() ? 0 : *std::max_element(draft.live.begin(), draft.live.end());
}

/// What copies cost the compute beside them.
double Drafts::slowed_s(const SectionSchedule& section) const {
  double sum_s = 0;
  for (const OffloadCopy& v : section.copies) {
    const double more = program_.info(v.tensor).counts_rows() ? rates_.counted_slowdown - 1 : 0;
    sum_s +=
        (d2h_cost_ + more) * rates_.d2h_s(v.moved) + (h2d_cost_ + more) * rates_.h2d_s(v.moved);
  }
  return sum_s;
}

void Drafts::estimate(Draft& draft) const {
  draft.time_s = 0;
  for (std::size_t s = 0; s < draft.sections.size(); ++s) {
    const SectionSchedule& section = draft.sections[s];
    draft.time_s += program_.sections()[s].repeat *
                    (section_time_s(section.copies, section.timeline, rates_) + slowed_s(section));
  }
}

Draft Drafts::schedule(const std::vector<Decision>& decisions) const {
  Draft draft;
  for (std::size_t s = 0; s < program_.sections().size(); ++s) {
    const int index = static_cast<int>(s);
    SectionSchedule section;
    section.timeline = make_timeline(program_, reruns_, index, decisions, ops_);
    section.copies = find_offload_copies(program_, saved_tensors_, decisions,
                                         policy_.min_tensor_bytes, index, section.timeline, ops_);
    draft.wait_s += offload::schedule(section.copies, section.timeline, rates_);
    draft.sections.push_back(std::move(section));
  }
  find_state_windows(program_, layout_, draft.sections);
  return draft;
}

double Drafts::time_s(const std::vector<Decision>& decisions) const {
  Draft draft = schedule(decisions);
  estimate(draft);
  return draft.time_s;
}

Draft Drafts::make(const std::vector<Decision>& decisions) const {
  Draft draft = schedule(decisions);
  assemble(draft, decisions);
  estimate(draft);
  return draft;
}

std::vector<std::size_t> Drafts::live_at_runs(const Draft& draft, const SectionSchedule& section) {
  std::vector<std::size_t> live;
  for (const int step : section.steps) live.push_back(draft.live[step]);
  return live;
}

void Drafts::evict_early(Draft& draft, std::size_t limit) const {
  if (draft.peak <= limit) return;
  for (SectionSchedule& section : draft.sections) {
    std::vector<std::size_t> live = live_at_runs(draft, section);
    offload::evict_early(section.copies, live, limit, alignment_);
  }
  const std::vector<Decision> decisions = draft.plan.decisions;
  assemble(draft, decisions);
  estimate(draft);
}

Draft Drafts::make_within(const std::vector<Decision>& decisions, std::size_t limit) const {
  Draft draft = make(decisions);
  evict_early(draft, limit);
  return draft;
}

Draft Drafts::make_smallest(const std::vector<Decision>& decisions, double most_s) const {
  const Draft loose = make(decisions);
  Draft best = loose;
  std::size_t low = 0;
  std::size_t high = loose.peak;
  for (int i = 0; i < kHalvings && low < high; ++i) {
    const std::size_t limit = low + (high - low) / 2;
    Draft draft = loose;
    evict_early(draft, limit);
    const bool good = draft.peak <= limit && draft.time_s <= most_s;
    (good ? high : low) = limit;
    if (good) best = std::move(draft);
  }
  return best;
}

void Drafts::prefetch_early(Draft& draft, std::size_t limit, std::size_t window_limit) const {
  for (SectionSchedule& section : draft.sections) {
    std::vector<std::size_t> at_run = live_at_runs(draft, section);
    offload::prefetch_early(section.copies, section.timeline, at_run, limit, alignment_);
  }
  const std::vector<Decision> decisions = draft.plan.decisions;
  assemble(draft, decisions);
  if (layout_.host_bytes() == 0) return;
  std::vector<std::vector<std::size_t>> live;
  for (const SectionSchedule& section : draft.sections)
    live.push_back(live_at_runs(draft, section));
  load_early(program_, draft.sections, live, window_limit, alignment_, rates_,
             policy_.caps.h2d_bytes < 0);
  const execution::CopyCaps& caps = policy_.caps;
  if (caps.max_inflight < 0 && caps.d2h_bytes < 0 && caps.h2d_bytes < 0)
    carry_write_backs(program_, draft.sections, live, window_limit, alignment_, rates_);
  assemble(draft, decisions);
}

}  // namespace stowage::offload
