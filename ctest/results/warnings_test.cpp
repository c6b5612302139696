#include <gtest/gtest.h>

#include <limits>

#include "made_up_ranks.hpp"

namespace stowage::results {
namespace {

using test::eight_gpus;
using test::Lines;

/// Eight ranks of one host and eight of another one.
std::vector<RankInfo> two_hosts() {
  std::vector<RankInfo> ranks = eight_gpus();
  for (RankInfo rank : eight_gpus()) {
    rank.rank += 8;
    rank.host = "n2";
    rank.gpu_links.clear();
    ranks.push_back(rank);
  }
  return ranks;
}

TEST(warnings, a_good_machine_has_none) {
  EXPECT_EQ(warnings(eight_gpus()), Lines{});
  EXPECT_EQ(warnings(two_hosts()), Lines{});
}

TEST(warnings, what_nobody_says_is_not_judged) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<RankInfo> ranks = two_hosts();
  for (RankInfo& rank : ranks) {
    rank.gpu_clock_hz = rank.gpu_power_limit_w = nan;
    rank.gpu_nvlinks = 0;
    rank.gpu_nvlink_bytes_per_s = 0;
    rank.gpu_links.clear();
    rank.nics = "eth0 0000:02:00.0 ethernet - -";
  }
  ranks[0].gpu_clock_limit_hz = 1.2e9;
  ranks[1].gpu_nvlinks = 18;
  EXPECT_EQ(warnings(ranks), Lines{});
}

TEST(warnings, clocks_that_are_held_are_named) {
  std::vector<RankInfo> ranks = eight_gpus();
  ranks[2].gpu_clock_limit_hz = 1.2e9;
  ranks[3].gpu_clock_limit_hz = 1.98e9;
  ranks[5].gpu_clock_events = "hardware slowdown, power brake";
  EXPECT_EQ(warnings(ranks),
            (Lines{"rank 2: its GPU may run at 1200 MHz of 1980 MHz",
                   "rank 5: its GPU's clock was held down before the run: hardware slowdown, power "
                   "brake"}));
}

TEST(warnings, errors_of_memory_are_counted) {
  std::vector<RankInfo> ranks = eight_gpus();
  ranks[1].gpu_ecc_errors = 1;
  ranks[6].gpu_ecc_errors = 12;
  EXPECT_EQ(warnings(ranks),
            (Lines{"rank 1: its GPU has had 1 memory error that ECC could not correct since its "
                   "driver was loaded",
                   "rank 6: its GPU has had 12 memory errors that ECC could not correct since its "
                   "driver was loaded"}));
}

TEST(warnings, links_that_are_down_are_named_where_others_are_up) {
  std::vector<RankInfo> ranks = eight_gpus();
  ranks[4].gpu_nvlinks = 16, ranks[4].gpu_nvlinks_down = 2;
  EXPECT_EQ(warnings(ranks),
            Lines{"rank 4: 16 of its GPU's NVLinks are up and 2 down, others of its host have 18: "
                  "its exchanges slow all of them down"});
  ranks[4].gpu_name = "another board";
  EXPECT_EQ(warnings(ranks), Lines{}) << "which may have fewer";
  for (RankInfo& rank : ranks) rank.gpu_nvlinks = 0, rank.gpu_nvlinks_down = 18;
  EXPECT_EQ(warnings(ranks), Lines{}) << "boards without bridges";
}

TEST(warnings, peers_that_cannot_reach_each_other_are_named) {
  std::vector<RankInfo> ranks = two_hosts();
  ranks[1].gpu_unreached = "3";
  ranks[3].gpu_unreached = "1";
  ranks[12].gpu_unreached = "8-9";
  const auto said = [](int one, int other) {
    return fmt::format(
        "ranks {} and {}: their GPUs cannot reach each other's memory: what they exchange goes "
        "through the host's",
        one, other);
  };
  EXPECT_EQ(warnings(ranks), (Lines{said(1, 3), said(8, 12), said(9, 12)}));
  ranks[0].gpu_unreached = "8";
  EXPECT_EQ(warnings(ranks).size(), 3U) << "that rank is on another host";
}

TEST(warnings, many_pairs_are_counted) {
  std::vector<RankInfo> ranks = eight_gpus();
  const std::string all = "0-7";
  for (RankInfo& rank : ranks) rank.gpu_unreached = all;
  EXPECT_EQ(warnings(ranks),
            Lines{"ranks 0 and 1 (and 27 more pairs of their host): their GPUs cannot reach each "
                  "other's memory: what they exchange goes through the host's"});
  for (RankInfo& rank : ranks) std::swap(rank.gpu_unreached, rank.gpu_hidden);
  const Lines rows = warnings(ranks);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].find("ranks 0 and 1 (and 27 more pairs of their host): one is not shown"), 0U)
      << rows[0];
}

TEST(warnings, cards_on_another_node_matter_between_hosts) {
  std::vector<RankInfo> ranks = two_hosts();
  const std::string one = "mlx5_0 0000:3c:00.0 fabric 0 SYS, eth0 0000:bd:00.0 ethernet 1 NODE";
  ranks[6].nics = one;
  const Lines said = {
      "rank 6: its GPU is on NUMA node 1, the nearest network card on 0: what leaves the host "
      "crosses between them"};
  EXPECT_EQ(warnings(ranks), said) << "Ethernet beside a fabric is for other things";
  ranks[6].nics = "eth0 0000:bd:00.0 ethernet 1 NODE";
  EXPECT_EQ(warnings(ranks), Lines{}) << "it is all there is";
  ranks[6].nics = fmt::format("{}, mlx5_2 0000:be:00.0 fabric - SYS", one);
  EXPECT_EQ(warnings(ranks), Lines{}) << "nobody says where the third one is";
  std::vector<RankInfo> alone = eight_gpus();
  alone[6].nics = one;
  EXPECT_EQ(warnings(alone), Lines{}) << "nothing leaves the host";
}

}  // namespace
}  // namespace stowage::results
