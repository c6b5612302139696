#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "offload/assembly.hpp"
#include "offload/gradient_memory_reuse.hpp"
#include "offload/policy.hpp"
#include "offload/rates.hpp"
#include "offload/reruns.hpp"
#include "offload/saved_tensors.hpp"

namespace stowage::offload {

/// A plan before it has addresses, and what it would need.
struct Draft {
  std::vector<SectionSchedule> sections;
  execution::Plan plan;
  std::vector<std::size_t> live;  ///< transient bytes live at each step of the plan
  std::size_t peak = 0;           ///< the largest of them
  double wait_s = 0;              ///< that copies back are late if nothing is evicted early
  double time_s = 0;              ///< estimate for one execution, waits and slower compute included
};

/// Makes drafts of one program for different decisions.
class Drafts {
 public:
  Drafts(const execution::Program& program, const execution::PersistentLayout& layout,
         const Policy& policy, const Rates& rates, std::size_t alignment);

  const execution::Program& program() const { return program_; }
  const execution::PersistentLayout& layout() const { return layout_; }
  const Policy& policy() const { return policy_; }
  const Rates& rates() const { return rates_; }
  const std::vector<SavedTensor>& saved_tensors() const { return saved_tensors_; }
  const Reruns& reruns() const { return reruns_; }
  const GradientMemoryReuse& gradient_memory_reuse() const { return reuse_; }

  /// Time for a byte of computing a tensor again while all others are kept but what `decisions`
  /// say; nothing if it cannot be.
  std::optional<double> rerun_s_per_byte(const SavedTensor& item,
                                         std::vector<execution::Decision> decisions) const;
  /// What make() says of the time, without making steps and places.
  double time_s(const std::vector<execution::Decision>& decisions) const;
  /// Copies back come as late as they may; the first residences end when their copies are done.
  Draft make(const std::vector<execution::Decision>& decisions) const;
  /// The same, but first residences end as early as it takes to have at most `limit` bytes live, if
  /// that can be, whether or not their copies are done.
  Draft make_within(const std::vector<execution::Decision>& decisions, std::size_t limit) const;
  /// The smallest of these that takes at most `most_s`.
  Draft make_smallest(const std::vector<execution::Decision>& decisions, double most_s) const;
  /// Issues copies back earlier, as far as no more than `limit` bytes are live, and loads windows
  /// of states earlier, as far as `window_limit` allows.
  void prefetch_early(Draft& draft, std::size_t limit, std::size_t window_limit) const;

 private:
  std::vector<execution::Tensor> tenants() const;
  void assemble(Draft& draft, const std::vector<execution::Decision>& decisions) const;
  double slowed_s(const SectionSchedule& section) const;
  Draft schedule(const std::vector<execution::Decision>& decisions) const;
  void estimate(Draft& draft) const;
  void evict_early(Draft& draft, std::size_t limit) const;
  static std::vector<std::size_t> live_at_runs(const Draft& draft, const SectionSchedule& section);

  const execution::Program& program_;
  const execution::PersistentLayout& layout_;
  const Policy& policy_;
  const Rates& rates_;
  std::size_t alignment_;
  std::vector<SavedTensor> saved_tensors_;
  Reruns reruns_;
  OpFacts ops_;
  double d2h_cost_, h2d_cost_;  ///< what a second of copies costs the compute beside it
  GradientMemoryReuse reuse_;
};

}  // namespace stowage::offload
