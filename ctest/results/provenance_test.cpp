#include "results/provenance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <set>

#include "scratch_folder.hpp"

namespace stowage::results {
namespace {

TEST(provenance, this_rank_finds_its_machine) {
  const RankInfo info = this_rank(3, 2);
  EXPECT_EQ(info.rank, 3);
  EXPECT_FALSE(info.host.empty());
  EXPECT_GT(info.cpus, 0);
  EXPECT_FALSE(info.cpuset.empty());
  EXPECT_GT(info.memory_bytes, 1 << 20);
  EXPECT_NE(info.topology.find("PU:"), std::string::npos) << info.topology;
}

TEST(provenance, ranks_travel_as_text) {
  RankInfo info = this_rank(3, 2);
  info.gpu_name = "A \"GPU\"";
  info.gpu_clock_hz = 1.98e9;
  const RankInfo back = rank_from_text(to_text(info));
  for_each_rank_field([&](const char* field, auto member, bool) {
    EXPECT_EQ(back.*member, info.*member) << field;
  });
}

TEST(provenance, what_a_board_does_not_say_travels_too) {
  RankInfo info = this_rank(3, 2);
  info.gpu_clock_hz = std::numeric_limits<double>::quiet_NaN();
  info.gpu_links = "1 NV18 by switch";
  const RankInfo back = rank_from_text(to_text(info));
  EXPECT_TRUE(std::isnan(back.gpu_clock_hz));
  EXPECT_EQ(back.gpu_links, "1 NV18 by switch");
}

std::vector<RankInfo> equal_ranks(std::size_t count) {
  std::vector<RankInfo> ranks(count);
  for (std::size_t i = 0; i < count; ++i) {
    ranks[i].rank = static_cast<std::int64_t>(i);
    ranks[i].host = "n1";
    ranks[i].cpuset = fmt::format("{}", i);
    ranks[i].gpu_driver = "580.1";
  }
  return ranks;
}

TEST(provenance, the_odd_rank_is_named) {
  auto ranks = equal_ranks(4);
  EXPECT_TRUE(differences(ranks).empty());
  ranks[2].gpu_driver = "535.0";
  ranks[2].host = "n2";
  const auto rows = differences(ranks);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0], "rank 2 (host n2): gpu_driver is '535.0', most ranks have '580.1'");
}

TEST(provenance, ranks_that_share_cpus_are_named) {
  auto ranks = equal_ranks(3);
  ranks[1].cpuset = "0-1";
  const auto rows = differences(ranks);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_NE(rows[0].find("share CPUs 0"), std::string::npos) << rows[0];
  ranks[0].host = "n2";
  EXPECT_TRUE(differences(ranks).empty()) << "the same numbers on another host are other CPUs";
}

TEST(provenance, what_could_be_better_is_named_even_if_all_ranks_are_alike) {
  auto ranks = equal_ranks(2);
  for (RankInfo& rank : ranks) {
    rank.cpus = rank.threads = 8;
    rank.numa_nodes = "0,2-3";
    rank.gpu_numa_node = "2";
    rank.gpu_mode = "ecc on";
    rank.gpu_power_limit_w = rank.gpu_default_limit_w = 700;
  }
  EXPECT_TRUE(warnings(ranks).empty()) << warnings(ranks).front();
  ranks[1].gpu_numa_node = "1";
  EXPECT_EQ(warnings(ranks), std::vector<std::string>{
                                 "rank 1: its CPUs are on NUMA node 0,2-3, its GPU on 1: copies "
                                 "and launches cross between them"});
  ranks[1].gpu_numa_node = "";  // the host does not say
  for (RankInfo& rank : ranks) rank.gpu_power_limit_w = 500;
  ranks[1].gpu_default_limit_w = 0;  // nor the board
  EXPECT_EQ(warnings(ranks), std::vector<std::string>{"rank 0: its GPU may use 500 W of 700 W"});
  ranks[0].gpu_default_limit_w = 0;
  ranks[0].gpu_mode = "ecc off, mig off";
  ranks[1].threads = 16;
  const auto rows = warnings(ranks);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0], "rank 0: ECC of its GPU is off: errors of memory go unseen");
  EXPECT_EQ(rows[1], "rank 1: 16 threads share 8 CPUs");
  EXPECT_TRUE(numa_node_of("FFFF:FF:1F.7").empty());
}

TEST(provenance, folders_of_the_machine_are_left_out) {
  EXPECT_EQ(without_folders("/opt/x/bin/train"), "train");
  EXPECT_EQ(without_folders("run.output=\"/runs/a.h5\""), "run.output=\"a.h5\"");
  EXPECT_EQ(without_folders("inputs/quickstart.toml"), "inputs/quickstart.toml");
  EXPECT_EQ(without_folders("/a/b:/c/d/,1/2"), "b:d,1/2");
  EXPECT_EQ(without_folders("/"), "");
  const char* const argv[] = {"/opt/bin/stowage_train", "data.path=/data/book.txt"};
  EXPECT_EQ(begin_run(2, argv, 1, 0).argv,
            (std::vector<std::string>{"stowage_train", "data.path=book.txt"}));
  for (const std::string& library : loaded_libraries())
    EXPECT_EQ(library.find('/'), std::string::npos) << library;
}

TEST(provenance, every_run_has_its_own_uuid) {
  const char* const argv[] = {"stowage_train", "a.toml"};
  const std::regex form("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  std::set<std::string> uuids;
  int repeats = 0;
  for (int i = 0; i < 100; ++i) {
    const RunInfo run = begin_run(2, argv, 1, 0);
    EXPECT_TRUE(std::regex_match(run.uuid, form)) << run.uuid;
    uuids.insert(run.uuid);
    repeats += run.uuid.substr(0, 4) == run.uuid.substr(9, 4) ? 1 : 0;
    EXPECT_EQ(run.argv[1], "a.toml");
  }
  EXPECT_EQ(uuids.size(), 100U);
  EXPECT_LT(repeats, 5) << "parts of a UUID follow from others";
}

TEST(provenance, software_names_build_and_libraries) {
  std::set<std::string> names;
  for (const auto& field : software({{"mpi", std::string("MPI 3.1")}}))
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
  for (const char* name : {"git_describe", "compiler", "flags", "hdf5_loaded", "mpi"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_FALSE(loaded_libraries().empty());
  EXPECT_TRUE(std::ranges::is_sorted(loaded_libraries()));
}

TEST(provenance, files_are_hashed_up_to_a_limit) {
  const test::ScratchFolder folder;
  test::write_all(folder / "a", "abc");
  EXPECT_EQ(record_file(folder / "a").sha256.substr(0, 8), "ba7816bf");
  EXPECT_EQ(record_file(folder / "a", 2).sha256, "");
  EXPECT_EQ(record_file(folder / "a", 2).bytes, 3);
  test::expect_error(execution::Exit::usage, {"missing"}, [&] { record_file(folder / "missing"); });
}

}  // namespace
}  // namespace stowage::results
