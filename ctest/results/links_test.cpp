#include "results/links.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "made_up_ranks.hpp"

namespace stowage::results {
namespace {

using test::eight_gpus;
using test::Lines;

TEST(links, travel_as_text) {
  const std::vector<GpuLink> links = {{1, "NV18 by switch"}, {2, ""}, {12, "SYS"}};
  EXPECT_EQ(to_text(links), "1 NV18 by switch, 12 SYS") << "nobody says how rank 2 is reached";
  const auto back = links_from_text(to_text(links));
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].rank, 1);
  EXPECT_EQ(back[0].path, "NV18 by switch");
  EXPECT_EQ(back[1].rank, 12);
  EXPECT_EQ(back[1].path, "SYS");
  EXPECT_TRUE(links_from_text("").empty());
}

TEST(links, cards_travel_as_text) {
  const std::vector<Nic> nics = {{"mlx5_0", "0000:3c:00.0", true, "1", "PIX"},
                                 {"eth0", "0000:02:00.0", false, "", ""}};
  EXPECT_EQ(to_text(nics), "mlx5_0 0000:3c:00.0 fabric 1 PIX, eth0 0000:02:00.0 ethernet - -");
  const auto back = nics_from_text(to_text(nics));
  ASSERT_EQ(back.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back[i].name, nics[i].name);
    EXPECT_EQ(back[i].pci, nics[i].pci);
    EXPECT_EQ(back[i].fabric, nics[i].fabric);
    EXPECT_EQ(back[i].numa_node, nics[i].numa_node);
    EXPECT_EQ(back[i].path, nics[i].path);
  }
}

TEST(links, ranges_are_short) {
  EXPECT_EQ(ranges_text(std::vector<std::int64_t>{0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(ranges_text({}), "");
}

/// hwloc reads a machine from the file that this variable names.
class MadeUpHost : public testing::Test {
 protected:
  void SetUp() override { setenv("HWLOC_XMLFILE", STOWAGE_TWO_PACKAGES, 1); }
  void TearDown() override { unsetenv("HWLOC_XMLFILE"); }
};

TEST_F(MadeUpHost, cards_have_their_node_and_path) {
  EXPECT_EQ(to_text(nics_from("0000:12:00.0")),
            "eth0 0000:10:02.0 ethernet 0 PHB, mlx5_0 0000:13:00.0 fabric 0 PIX, "
            "mlx5_1 0000:20:01.0 fabric 1 SYS");
}

TEST_F(MadeUpHost, cards_are_found_without_a_gpu) {
  for (const char* gpu : {"", "0000:99:00.0"})
    EXPECT_EQ(to_text(nics_from(gpu)),
              "eth0 0000:10:02.0 ethernet 0 -, mlx5_0 0000:13:00.0 fabric 0 -, "
              "mlx5_1 0000:20:01.0 fabric 1 -");
}

TEST(links, this_host_is_read) {
  for (const Nic& nic : nics_from("")) {
    EXPECT_FALSE(nic.name.empty());
    EXPECT_EQ(nic.pci.size(), 12U) << nic.pci;
    EXPECT_EQ(nic.path, "") << nic.name;
  }
}

TEST(link_lines, a_host_is_a_matrix) {
  std::vector<RankInfo> ranks = eight_gpus();
  ranks.resize(3);
  ranks[0].gpu_links = "1 NV4, 2 SYS";
  ranks[1].gpu_links = "0 NV4";
  ranks[2].gpu_links = "0 SYS, 1 NODE";
  ranks[2].gpu_nvlinks = 0, ranks[2].gpu_numa_node = "1";
  ranks[2].nics.clear();
  ranks[0].nics = "mlx5_0 0000:3c:00.0 fabric 0 PIX, enx02 0000:02:00.0 ethernet - PHB";
  ranks[1].nics = "mlx5_0 0000:3c:00.0 fabric 0 PXB, enx02 0000:02:00.0 ethernet - PHB";
  EXPECT_EQ(link_lines(ranks),
            (Lines{"links of ranks 0-2", "  rank      0      1      2   NIC0   NIC1  numa  NVLinks",
                   "     0      X    NV4    SYS    PIX    PHB     0  18 up, 478 GB/s",
                   "     1    NV4      X      -    PXB    PHB     0  18 up, 478 GB/s",
                   "     2    SYS   NODE      X      -      -     1  -",
                   "  NIC0: mlx5_0 (fabric) at 0000:3c:00.0, NUMA node 0",
                   "  NIC1: enx02 (Ethernet) at 0000:02:00.0",
                   "  NV#: that many NVLinks; PIX: one PCIe switch at most; PXB: several PCIe "
                   "switches; PHB: the host bridge; NODE: host bridges of one NUMA node; SYS: "
                   "between NUMA nodes"}));
}

TEST(link_lines, hosts_that_are_alike_are_one_matrix) {
  std::vector<RankInfo> ranks;
  for (std::int64_t host = 0; host < 4; ++host)
    for (std::int64_t at = 0; at < 2; ++at) {
      RankInfo rank;
      rank.rank = 2 * host + at;
      rank.host = fmt::format("n{}", 9 - host);
      rank.gpu_links = fmt::format("{} NV{} by switch", 2 * host + 1 - at, host == 2 ? 16 : 18);
      ranks.push_back(rank);
    }
  const Lines lines = link_lines(ranks);
  ASSERT_EQ(lines.size(), 9U);
  EXPECT_EQ(lines[0], "links of ranks 0-1 (alike: 2-3; 6-7)");
  EXPECT_EQ(lines[2], "     0      X  NV18*     -  -");
  EXPECT_EQ(lines[4], "links of ranks 4-5");
  EXPECT_EQ(lines[7], "     5  NV16*      X     -  -");
  EXPECT_EQ(lines[8], "  NV#: that many NVLinks; *: by a switch");
  for (const std::string& line : lines) EXPECT_EQ(line.find("n9"), std::string::npos) << line;
}

TEST(link_lines, hosts_with_other_cards_are_not_alike) {
  const auto first = [](const std::string& card) {
    std::vector<RankInfo> ranks(4);
    for (std::int64_t at = 0; at < 4; ++at) {
      ranks[at].rank = at;
      ranks[at].host = at < 2 ? "n1" : "n2";
      ranks[at].gpu_links = fmt::format("{} NV18", at ^ 1);
      ranks[at].nics = (at < 2 ? "mlx5_0 0000:3c:00.0 fabric 0" : card) + " PIX";
    }
    return link_lines(ranks).front();
  };
  EXPECT_EQ(first("mlx5_0 0000:3c:00.0 fabric 0"), "links of ranks 0-1 (alike: 2-3)");
  for (const char* other : {"mlx5_1 0000:3c:00.0 fabric 0", "mlx5_0 0000:3d:00.0 fabric 0",
                            "mlx5_0 0000:3c:00.0 fabric 1"})
    EXPECT_EQ(first(other), "links of ranks 0-1") << other;
}

TEST(link_lines, what_nobody_knows_has_no_lines) {
  std::vector<RankInfo> ranks(2);
  ranks[1].rank = 1;
  EXPECT_TRUE(link_lines(ranks).empty());
  EXPECT_TRUE(link_lines({}).empty());
  ranks[0].nics = "eth0 0000:02:00.0 ethernet 0 -";
  EXPECT_TRUE(link_lines(ranks).empty()) << "no paths";
  ranks[0].gpu_links = "1 SYS";
  EXPECT_FALSE(link_lines(ranks).empty());
  ranks.resize(1);
  EXPECT_TRUE(link_lines(ranks).empty()) << "one rank";
}

}  // namespace
}  // namespace stowage::results
