#include "run/machine/gpu_agreement.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace stowage::run {
namespace {

const GpuFinding kHas{.host = "n1", .opened = true, .problem = ""};
const GpuFinding kNone{.host = "n2", .opened = false, .problem = "no GPU"};
const GpuFinding kShares{.host = "n3", .opened = true, .problem = "2 ranks see 1 GPUs"};

bool contains(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(gpu_agreement, all_have_one_and_use_it) {
  for (const bool required : {false, true}) {
    const GpuAgreement all = agree_on_gpus(std::vector{kHas, kHas}, required);
    EXPECT_TRUE(all.on_gpus);
    EXPECT_TRUE(all.refusal.empty() && all.warning.empty());
  }
}

TEST(gpu_agreement, a_mixture_is_refused_and_names_one_of_each) {
  const GpuAgreement mixed = agree_on_gpus(std::vector{kHas, kHas, kNone, kNone}, false);
  EXPECT_FALSE(mixed.on_gpus);
  EXPECT_TRUE(mixed.warning.empty());
  EXPECT_TRUE(contains(mixed.refusal, "rank 0 on host n1 has a GPU, rank 2 on host n2 has none"))
      << mixed.refusal;
  EXPECT_TRUE(contains(mixed.refusal, "no GPU")) << mixed.refusal;
  // A rank that shares a GPU has one all the same where another found none at all.
  const GpuAgreement shared = agree_on_gpus(std::vector{kNone, kShares}, false);
  EXPECT_TRUE(contains(shared.refusal, "rank 1 on host n3 has a GPU, rank 0 on host n2 has none"))
      << shared.refusal;
}

TEST(gpu_agreement, ranks_that_share_beside_ranks_that_do_not_are_refused) {
  const GpuAgreement mixed = agree_on_gpus(std::vector{kShares, kShares, kHas}, false);
  EXPECT_TRUE(
      contains(mixed.refusal, "rank 2 on host n1 has a GPU of its own, rank 0 on host n3 has none"))
      << mixed.refusal;
}

TEST(gpu_agreement, none_anywhere_is_a_warning_unless_one_is_required) {
  for (const GpuFinding& one : {kNone, kShares}) {
    const GpuAgreement none = agree_on_gpus(std::vector{one, one}, false);
    EXPECT_FALSE(none.on_gpus);
    EXPECT_TRUE(none.refusal.empty()) << none.refusal;
    EXPECT_TRUE(contains(none.warning, one.problem)) << none.warning;
    const GpuAgreement required = agree_on_gpus(std::vector{one, one}, true);
    EXPECT_EQ(required.refusal, one.problem);
    EXPECT_TRUE(required.warning.empty());
  }
}

TEST(gpu_agreement, where_gpus_are_required_the_rank_without_one_is_named) {
  const GpuAgreement mixed = agree_on_gpus(std::vector{kHas, kNone}, true);
  EXPECT_EQ(mixed.refusal, "rank 1 on host n2: no GPU");
}

TEST(gpu_agreement, findings_travel_as_text) {
  for (const GpuFinding& one : {kHas, kNone, kShares}) {
    const GpuFinding same = finding_from_text(to_text(one));
    EXPECT_EQ(same.host, one.host);
    EXPECT_EQ(same.opened, one.opened);
    EXPECT_EQ(same.problem, one.problem);
  }
}

}  // namespace
}  // namespace stowage::run
