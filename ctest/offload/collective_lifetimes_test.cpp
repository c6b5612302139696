// Bytes that an exchange uses are not given to compute beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "execution/verifier.hpp"
#include "offload/planner.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;

constexpr std::int64_t kMiB = 1 << 20;

/// `made` travels while `beside` computes; `after` reads what arrived. Another moment of the step
/// needs `fullest` MiB.
struct Exchanged {
  Program program{"exchanged"};
  PersistentLayout layout;
  Tensor out;

  explicit Exchanged(std::int64_t fullest) {
    const Tensor made = scratch("made", 1), arrived = scratch("arrived", 1);
    const Tensor other = scratch("other", 1), full = scratch("full", fullest);
    out = program.output("out", Dtype::uint8, {16});
    append("make", Lane::compute, {{made, Access::write}});
    append("exchange", Lane::comm, {{made, Access::read}, {arrived, Access::write}});
    append("beside", Lane::compute, {{other, Access::write}});
    append("use other", Lane::compute, {{other, Access::read}, {out, Access::write}});
    append("after", Lane::compute, {{arrived, Access::read}, {out, Access::update}});
    append("fill", Lane::compute, {{full, Access::write}});
    append("use full", Lane::compute, {{full, Access::read}, {out, Access::update}});
    program.finish();
  }

  Tensor scratch(const char* name, std::int64_t mib) {
    return program.scratch(name, Dtype::uint8, {mib * kMiB});
  }
  void append(std::string name, Lane lane, std::vector<Use> uses) {
    Op op;
    op.name = std::move(name);
    op.lane = lane;
    op.uses = std::move(uses);
    op.cost.bytes = 1e6;
    op.launch = [](Queue&, std::span<const View>) {};
    program.append(std::move(op));
  }
};

/// The only place of a tensor in a plan.
const Place& place_of(const Program& program, const Plan& plan, const char* name) {
  const auto found = std::ranges::find_if(plan.places, [&](const Place& place) {
    return place.region == Region::transient && program.info(place.tensor).name == name;
  });
  EXPECT_NE(found, plan.places.end()) << name;
  return *found;
}

bool share_bytes(const Place& a, const Place& b) {
  return a.offset < b.end() && b.offset < a.end();
}

Plan proven(const Exchanged& exchanged) {
  Plan plan = offload::make_plan(exchanged.program, exchanged.layout);
  const PlannedProgram planned{&exchanged.program, &plan};
  EXPECT_TRUE(verify({&planned, 1}).empty());
  return plan;
}

TEST(collective_lifetimes, bytes_of_an_exchange_are_kept_from_overlapping_compute) {
  const Exchanged exchanged(8);
  const Plan plan = proven(exchanged);
  const Place& other = place_of(exchanged.program, plan, "other");
  EXPECT_FALSE(share_bytes(other, place_of(exchanged.program, plan, "made")));
  EXPECT_FALSE(share_bytes(other, place_of(exchanged.program, plan, "arrived")));
}

TEST(collective_lifetimes, no_byte_is_spent_on_it) {
  for (const std::int64_t fullest : {1, 3, 8}) {
    const Plan plan = proven(Exchanged(fullest));
    EXPECT_EQ(plan.bytes[static_cast<int>(Region::transient)], plan.live_bytes) << fullest;
    EXPECT_LE(plan.live_bytes,
              static_cast<std::size_t>(std::max<std::int64_t>(fullest, 3) * kMiB) + kAlignment);
  }
}

}  // namespace
}  // namespace stowage::ctest
