#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "execution/verifier.hpp"
#include "offload/planner.hpp"
#include "toy_program.hpp"

namespace stowage::ctest {
namespace {

/// A proven plan of the toy, to be broken in one way.
struct Broken {
  Toy toy;
  Plan plan;

  explicit Broken(int microbatches = 3) : toy(microbatches) {
    plan = offload::make_plan(toy.program, toy.layout);
  }

  Step& step(const std::string& name) {
    for (Step& s : plan.steps)
      if (s.op >= 0 && describe(toy.program, s) == name) return s;
    throw Error(Exit::runtime, "no step " + name);
  }
  std::size_t index(const std::string& name) {
    return static_cast<std::size_t>(&step(name) - plan.steps.data());
  }
  Place& place(const std::string& tensor) {
    for (Place& p : plan.places)
      if (toy.program.info(p.tensor).name == tensor) return p;
    throw Error(Exit::runtime, "no place of " + tensor);
  }

  /// Expects a fault that contains all of `words`.
  void expect_caught(std::initializer_list<const char*> words) {
    const PlannedProgram planned{&toy.program, &plan};
    const std::vector<std::string> faults = verify({&planned, 1});
    ASSERT_FALSE(faults.empty());
    const bool named = std::any_of(faults.begin(), faults.end(), [&](const std::string& fault) {
      return std::all_of(words.begin(), words.end(),
                         [&](const char* word) { return fault.find(word) != std::string::npos; });
    });
    EXPECT_TRUE(named) << faults.front();
  }
};

TEST(faults, place_of_no_tensor_or_no_buffer_of_it) {
  for (const int id : {-1, 1 << 20}) {
    Broken b;
    b.place("x").tensor.id = id;
    b.expect_caught({"a place belongs to no tensor", std::to_string(id).c_str()});
  }
  for (const int buffer : {-1, 1}) {
    Broken b;
    b.place("x").buffer = buffer;
    b.expect_caught({"a place of x is for buffer", std::to_string(buffer).c_str()});
  }
}

TEST(faults, missing_edge_before_a_read) {
  Broken b;
  b.step("forward0/0").waits.clear();
  b.expect_caught({"forward0/0 reads x", "without an edge after", "stage/x"});
}

TEST(faults, missing_edge_before_an_update) {
  Broken b;
  b.step("all_reduce").waits.clear();
  b.expect_caught({"all_reduce", "gradient", "edge"});
}

TEST(faults, missing_edge_after_a_communication) {
  Broken b;
  b.step("update").waits.clear();
  b.expect_caught({"update reads gradient", "all_reduce"});
}

TEST(faults, missing_edge_before_bytes_are_overwritten) {
  Broken b;
  // The fork makes the copy of the next step's input follow the last reader.
  b.step("stage/x").waits.clear();
  b.expect_caught({"stage/x writes x over bytes of", "may still be"});
}

TEST(faults, missing_edge_after_another_program) {
  Broken b(1), other(1);
  // The copy follows the last step of its own program, not the fork.
  Step& last = b.step("result/sum");
  if (last.records < 0) last.records = b.plan.events++;
  b.step("stage/x").waits = {last.records};
  const PlannedProgram both[] = {{&b.toy.program, &b.plan}, {&other.toy.program, &other.plan}};
  EXPECT_TRUE(verify({both, 1}).empty());
  const std::vector<std::string> faults = verify(both);
  ASSERT_FALSE(faults.empty());
  EXPECT_TRUE(faults.front().starts_with("stage/x writes x over bytes")) << faults.front();
}

TEST(faults, early_reuse) {
  Broken b;
  b.place("y0/2").offset = b.place("y0/1").offset;
  b.expect_caught({"y0/1", "early reuse"});
}

TEST(faults, operands_of_an_op_in_the_same_bytes) {
  Broken b;
  b.place("dx0/2").offset = b.place("dx0/3").offset;
  b.expect_caught({"backward0/2 writes dx0/2 into the bytes of dx0/3, another of its operands"});
}

TEST(faults, reuse_inside_a_repeating_section) {
  Broken b(4);
  // x is read in every period of the body, so nothing of the body may lie on it.
  b.place("y1/3").offset = b.place("x").offset;
  b.expect_caught({"reads x", "y1/3"});
}

TEST(faults, unjoined_queue) {
  Broken b;
  b.plan.steps.back().waits.clear();
  b.expect_caught({"queue", "is not joined at the end of program toy"});
}

TEST(faults, read_before_its_write) {
  Broken b;
  std::swap(b.plan.steps[b.index("forward0/1")], b.plan.steps[b.index("forward0/3")]);
  b.expect_caught({"forward0/3", "y0/2", "before its write"});
}

TEST(faults, wait_launched_before_its_record) {
  Broken b(1);
  // The communication moves behind its consumer in host order; the consumer's wait stays.
  const std::size_t comm = b.index("all_reduce");
  const std::size_t update = b.index("update");
  std::rotate(b.plan.steps.begin() + static_cast<std::ptrdiff_t>(comm),
              b.plan.steps.begin() + static_cast<std::ptrdiff_t>(comm) + 1,
              b.plan.steps.begin() + static_cast<std::ptrdiff_t>(update) + 1);
  b.expect_caught({"all_reduce", "update"});
}

TEST(faults, stale_wait_is_named) {
  Broken b(1);
  const int fresh = b.plan.events++;
  Step& update = b.step("update");
  update.waits = {fresh};
  b.plan.steps.back().records = fresh;
  b.expect_caught({"update reads gradient", "is launched before the record"});
}

TEST(faults, op_left_out_or_doubled) {
  Broken b;
  b.step("forward0/1").op = b.step("forward0/2").op;
  b.expect_caught({"forward0/1 runs 0 times"});
}

TEST(faults, operand_of_another_tensor) {
  Broken b;
  std::swap(b.step("forward0/1").places[0], b.step("forward0/1").places[2]);
  b.expect_caught({"operand y0/0 of forward0/1 is bound to y0/1"});
}

TEST(faults, place_outside_its_region) {
  Broken b;
  b.place("y0/1").offset = b.plan.bytes[1];
  b.expect_caught({"y0/1", "transient region"});
}

TEST(faults, what_a_step_takes_or_gives_in_the_persistent_region) {
  for (const char* tensor : {"input tensor x", "output tensor sum"}) {
    Broken b;
    b.place(std::string(tensor).substr(std::string(tensor).rfind(' ') + 1)).region =
        Region::persistent;
    b.expect_caught({tensor, "lies in the persistent region"});
  }
}

TEST(faults, place_of_another_size) {
  Broken b;
  b.place("y0/1").bytes = 8;
  b.expect_caught({"a place of y0/1 has 8 bytes, its buffer has"});
}

TEST(faults, misaligned_place) {
  Broken b;
  b.place("y0/1").offset += 4;
  b.expect_caught({"y0/1", "multiple of 1024"});
}

TEST(faults, persistent_tensors_that_overlap) {
  Broken b;
  b.place("gradient").offset = b.place("weight").offset;
  b.expect_caught({"weight"});
}

TEST(faults, op_on_a_queue_of_another_lane) {
  Broken b;
  b.step("all_reduce").queue = 0;
  b.expect_caught({"all_reduce is on queue compute, of another lane"});
}

TEST(faults, rerun_of_an_op_that_updates_in_place) {
  Broken b;
  b.step("update").what = Step::What::rerun;
  b.expect_caught({"updates"});
}

}  // namespace
}  // namespace stowage::ctest
