#include <gtest/gtest.h>

#include "offload/prediction.hpp"
#include "offload/state_windows.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;

constexpr std::int64_t kMiB = 1 << 20;

/// Two copies that start at once, one in each direction, in either order of issue.
struct BothDirections {
  Program program{"copies"};
  Plan plan;

  BothDirections(std::int64_t in_mib, std::int64_t out_mib, bool in_first) {
    const Tensor in = program.scratch("in", Dtype::uint8, {in_mib * kMiB});
    const Tensor out = program.scratch("out", Dtype::uint8, {out_mib * kMiB});
    program.begin_section("only");
    program.finish();
    plan.queues = {{"compute", Lane::compute}, {"d2h", Lane::d2h}, {"h2d", Lane::h2d}};
    plan.events = 3;
    for (const Tensor tensor : {in, out})
      for (const Region region : {Region::transient, Region::host})
        plan.places.push_back({tensor, 0, region, 0, program.info(tensor).buffers[0].bytes()});
    const Step copy_in{Step::What::copy_in, -1, {1, 0}, 2, {0}, 1};
    const Step copy_out{Step::What::copy_out, -1, {2, 3}, 1, {0}, 2};
    plan.steps = {{Step::What::mark, -1, {}, 0, {}, 0},
                  in_first ? copy_in : copy_out,
                  in_first ? copy_out : copy_in,
                  {Step::What::mark, -1, {}, 0, {1, 2}}};
    plan.sections = {{0, 4}};
  }

  /// When the copy in and the copy out end. A MiB takes a second, 4/3 of one in both directions.
  std::pair<double, double> ends_s() const {
    offload::Rates rates;
    rates.d2h_bytes_per_s = rates.h2d_bytes_per_s = kMiB;
    rates.duplex_bytes_per_s = 1.5 * kMiB;
    rates.copy_latency_s = 0;
    const offload::Prediction found = offload::predict(program, plan, rates);
    double in_s = 0, out_s = 0;
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      if (plan.steps[i].what == Step::What::copy_in) in_s = found.end_s[i];
      if (plan.steps[i].what == Step::What::copy_out) out_s = found.end_s[i];
    }
    EXPECT_DOUBLE_EQ(found.time_s, std::max(in_s, out_s));
    EXPECT_DOUBLE_EQ(found.exposed_s, found.time_s);
    return {in_s, out_s};
  }
};

TEST(prediction, copies_in_both_directions_slow_each_other_in_any_order_of_issue) {
  for (const bool in_first : {false, true}) {
    const auto [in_s, out_s] = BothDirections(1, 1, in_first).ends_s();
    EXPECT_NEAR(in_s, 4.0 / 3, 1e-3) << in_first;
    EXPECT_NEAR(out_s, 4.0 / 3, 1e-3) << in_first;
  }
}

TEST(prediction, a_copy_is_slow_as_long_as_the_other_direction_is_busy) {
  for (const bool in_first : {false, true}) {
    const auto [in_s, out_s] = BothDirections(1, 2, in_first).ends_s();
    EXPECT_NEAR(in_s, 4.0 / 3, 1e-3) << in_first;
    EXPECT_NEAR(out_s, 7.0 / 3, 1e-3) << in_first;
  }
}

// One op's windows are loaded while another's are used and those of a third are written back.
TEST(prediction, windows_of_three_ops_are_there_at_once) {
  const auto window = [](std::size_t bytes, int run, int stays_from = -1) {
    return offload::StateWindow{.tensor = {}, .bytes = bytes, .run = run, .stays_from = stays_from};
  };
  std::vector<offload::SectionSchedule> sections(2);
  sections[0].windows = {window(100, 0), window(300, 1), window(1, 1)};
  sections[1].windows = {window(600, 0), window(600, 0, 1)};
  EXPECT_EQ(offload::least_window_bytes(sections, 256), 3 * 768U);
  sections[1].windows.back().stays_from = -1;
  EXPECT_EQ(offload::least_window_bytes(sections, 256), 3 * 2 * 768U);
}

}  // namespace
}  // namespace stowage::ctest
