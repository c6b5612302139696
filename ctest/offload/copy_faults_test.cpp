#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "execution/verifier.hpp"
#include "offload/planner.hpp"
#include "toy_program.hpp"

namespace stowage::ctest {
namespace {

using offload::Policy;

offload::PlannerOptions everything_leaves() {
  offload::PlannerOptions options;
  options.policy.kind = Policy::Kind::manual;
  options.policy.offload = {{"mlp_act", {"mlp_act"}}};
  options.policy.min_tensor_bytes = 0;
  options.policy.keep_exposed = false;
  options.rates.copy_latency_s = 0;  // small copies that are done early: bytes are reused
  return options;
}

offload::PlannerOptions everything_again() {
  offload::PlannerOptions options = everything_leaves();
  options.policy.recompute = options.policy.offload;
  return options;
}

/// A proven plan with copies or reruns, to be broken in one way.
struct Broken {
  Toy toy;
  Plan plan;

  explicit Broken(const offload::PlannerOptions& options, int microbatches = 3,
                  Toy::Rows rows = Toy::Rows::all)
      : toy(microbatches, 4, rows), plan(offload::make_plan(toy.program, toy.layout, options)) {
    EXPECT_EQ(verify_it().empty(), rows != Toy::Rows::counted_again);
  }

  std::vector<std::string> verify_it() const {
    const PlannedProgram planned{&toy.program, &plan};
    return verify({&planned, 1});
  }

  /// The step of a kind that copies a tensor, or reruns an op.
  std::size_t index(Step::What what, const std::string& name) const {
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      if (step.what != what) continue;
      const std::string& found = is_copy(step) ? toy.program.info(place(step.places[0]).tensor).name
                                               : toy.program.ops()[step.op].name;
      if (found == name) return i;
    }
    throw Error(Exit::runtime, "no step for " + name);
  }
  Step& step(Step::What what, const std::string& name) { return plan.steps[index(what, name)]; }
  const Place& place(int at) const { return plan.places[at]; }
  Place& place(int at) { return plan.places[at]; }

  void remove(std::size_t at) {
    plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(at));
    for (StepRange& section : plan.sections) {
      if (section.begin > static_cast<int>(at)) --section.begin;
      if (section.end > static_cast<int>(at)) --section.end;
    }
  }

  /// Expects a fault that contains all of `words`.
  void expect_caught(std::initializer_list<const char*> words) const {
    const std::vector<std::string> faults = verify_it();
    ASSERT_FALSE(faults.empty());
    EXPECT_TRUE(std::any_of(faults.begin(), faults.end(), [&](const std::string& fault) {
      return std::all_of(words.begin(), words.end(),
                         [&](const char* word) { return fault.find(word) != std::string::npos; });
    })) << faults.front();
  }
};

TEST(copy_faults, copy_to_the_host_before_the_write) {
  Broken b(everything_leaves());
  b.step(Step::What::copy_out, "y0/1").waits.clear();
  b.expect_caught({"copy to host reads y0/1 without an edge after its write by forward0/1"});
}

TEST(copy_faults, copy_back_before_the_copy_to_the_host) {
  Broken b(everything_leaves());
  b.step(Step::What::copy_in, "y0/2").waits.clear();  // the first to come back
  b.expect_caught({"copy from host", "y0/2"});
}

TEST(copy_faults, inline_reload_that_races_its_own_copy_to_the_host) {
  // The copy back moves in front of the copy to the host: what it brings is not there yet.
  Broken b(everything_leaves());
  const auto out = static_cast<std::ptrdiff_t>(b.index(Step::What::copy_out, "y0/1"));
  const auto back = static_cast<std::ptrdiff_t>(b.index(Step::What::copy_in, "y0/1"));
  std::rotate(b.plan.steps.begin() + out, b.plan.steps.begin() + back,
              b.plan.steps.begin() + back + 1);
  b.expect_caught({"copy from host reads y0/1 before its write"});
}

TEST(copy_faults, use_before_the_copy_back) {
  Broken b(everything_leaves());
  b.step(Step::What::run, "backward0/2").waits.clear();
  b.expect_caught({"backward0/2 reads y0/1 without an edge after its write by copy from host"});
}

TEST(copy_faults, rows_that_nobody_counts) {
  for (const Step::What what : {Step::What::copy_out, Step::What::copy_in}) {
    Broken b(everything_leaves(), 3, Toy::Rows::counted);
    b.step(what, "y0/1").places.pop_back();
    b.expect_caught({"of y0/1 has 2 places"});
  }
}

TEST(copy_faults, rows_counted_by_another_tensor) {
  Broken b(everything_leaves(), 3, Toy::Rows::counted);
  Step& step = b.step(Step::What::copy_out, "y0/1");
  step.places[2] = step.places[0];
  b.expect_caught({"of y0/1 counts its rows by y0/1"});
}

TEST(copy_faults, rows_counted_anew_before_they_come_back) {
  const Broken b(everything_leaves(), 3, Toy::Rows::counted_again);
  b.expect_caught({"count0 counts rows, and 2 ops write it"});
}

TEST(copy_faults, rows_counted_where_the_count_is_gone) {
  Broken b(everything_leaves(), 3, Toy::Rows::counted);
  // What comes back later takes the count's bytes.
  const int count = b.step(Step::What::copy_in, "y0/1").places[2];
  const int other = b.step(Step::What::copy_in, "y0/2").places[1];
  b.place(count).offset = b.place(other).offset;
  b.expect_caught({"count0"});
}

TEST(copy_faults, copy_to_the_host_left_out) {
  Broken b(everything_leaves());
  b.remove(b.index(Step::What::copy_out, "y0/1"));
  b.expect_caught({"y0/1", "before its write"});
}

TEST(copy_faults, copy_back_from_the_host_bytes_of_another) {
  Broken b(everything_leaves(), 1);
  const int from = b.step(Step::What::copy_in, "y0/1").places[0];
  b.place(from).offset = b.place(b.step(Step::What::copy_out, "y0/2").places[1]).offset;
  b.expect_caught({"copy from host reads y0/1", "y0/2"});
}

TEST(copy_faults, two_tensors_share_host_bytes) {
  Broken b(everything_leaves());
  const int a = b.step(Step::What::copy_out, "y0/0").places[1];
  const int c = b.step(Step::What::copy_out, "y0/2").places[1];
  b.place(c).offset = b.place(a).offset;
  b.expect_caught({"copy from host reads y0/0"});
}

TEST(copy_faults, copy_between_two_tensors) {
  Broken b(everything_leaves());
  b.step(Step::What::copy_in, "y0/1").places[1] = b.step(Step::What::copy_in, "y0/2").places[1];
  b.expect_caught({"is between host of y0/1 and transient of y0/2"});
}

TEST(copy_faults, rerun_left_out) {
  Broken b(everything_again());
  b.remove(b.index(Step::What::rerun, "forward0/1"));
  b.expect_caught({"y0/1", "before its write"});
}

TEST(copy_faults, rerun_of_what_has_changed_since) {
  // A rerun in the epilogue reads the weight as it was updated: no value of the program.
  Broken b(everything_again(), 1);
  Step rerun = b.step(Step::What::rerun, "forward0/0");
  rerun.waits.clear();
  rerun.records = -1;
  b.plan.steps.insert(b.plan.steps.end() - 1, rerun);
  ++b.plan.sections.back().end;
  b.expect_caught({"rerun of forward0/0 reads weight as update left it",
                   "not the value that program order gives it"});
}

TEST(copy_faults, a_stay_that_is_read_after_its_end) {
  Broken b(everything_leaves());
  // Backward reads the first residence, whose bytes are others' by then.
  const int first = b.step(Step::What::copy_out, "y0/0").places[0];
  Step& use = b.step(Step::What::run, "backward0/1");
  const int second = b.step(Step::What::copy_in, "y0/0").places[1];
  std::replace(use.places.begin(), use.places.end(), second, first);
  b.expect_caught({"backward0/1 reads y0/0", "early reuse"});
}

/// Removes the waits of all marks that join copies.
void drop_joins(Plan& plan) {
  for (std::size_t i = 1; i + 1 < plan.steps.size(); ++i)
    if (plan.steps[i].what == Step::What::mark) plan.steps[i].waits.clear();
}

TEST(copy_faults, max_inflight_not_kept) {
  for (const int most : {0, 1, 2}) {
    offload::PlannerOptions options = everything_leaves();
    options.policy.caps.max_inflight = most;
    options.rates.d2h_bytes_per_s = 1;  // no copy is done early, so nobody waits for one by chance
    Broken b(options);
    drop_joins(b.plan);
    b.expect_caught({"copies of mlp_act are under way to the host, the cap is"});
  }
}

TEST(copy_faults, byte_cap_to_the_host_not_kept) {
  offload::PlannerOptions options = everything_leaves();
  options.policy.caps.d2h_bytes = 2 * Toy::kWidth * 4;
  options.rates.d2h_bytes_per_s = 1;
  Broken b(options);
  drop_joins(b.plan);
  b.expect_caught({"8400 bytes are under way to the host, the cap is 5600"});
}

TEST(copy_faults, byte_cap_from_the_host_not_kept) {
  offload::PlannerOptions options = everything_leaves();
  options.policy.caps.h2d_bytes = Toy::kWidth * 4;
  Broken b(options);
  b.plan.caps.h2d_bytes = Toy::kWidth * 4 - 1;  // one alone still may
  EXPECT_TRUE(b.verify_it().empty());
  b.plan.caps.h2d_bytes = Toy::kWidth * 4;
  for (Step& step : b.plan.steps)
    if (step.what == Step::What::copy_in && step.waits.size() > 1) step.waits.pop_back();
  drop_joins(b.plan);
  b.expect_caught({"bytes are under way from the host, the cap is 2800"});
}

}  // namespace
}  // namespace stowage::ctest
