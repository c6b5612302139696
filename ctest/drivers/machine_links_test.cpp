// Links of groups by where their ranks lie.
#include "drivers/common/machine_links.hpp"

#include <gtest/gtest.h>

#include "execution/error.hpp"

namespace stowage::drivers {
namespace {

constexpr offload::Link kInside{1e-5, 4e11};

/// Hosts of 8 ranks and switches of 4 hosts; a port of 40 GB/s, half of it beyond a switch.
inputs::Deck machine(std::vector<std::string> overrides = {}) {
  return inputs::Deck::parse(
      "[model]\npattern = \"M\"\n[data]\nsource = \"synthetic\"\n"
      "[machine]\nranks_per_node = 8\nranks_per_switch = 32\nnetwork_latency_s = 1e-6\n"
      "network_bytes_per_s = 4e10\nspine_bytes_per_s = 2e10\n",
      "machine.toml", overrides);
}

std::map<std::string, offload::Link> links(int tensor, int context, int expert, int pipeline,
                                           int data) {
  return machine_links(machine(), {{{tensor, context, expert, pipeline, data}}}, kInside);
}

TEST(machine_links, groups_inside_a_host_are_as_the_machine_says) {
  EXPECT_TRUE(links(8, 1, 1, 1, 1).empty());
  EXPECT_FALSE(links(8, 1, 1, 1, 2).contains("tensor"));
}

TEST(machine_links, what_leaves_a_host_passes_the_port_of_each_rank) {
  // 8 of the 15 others are on the other host.
  const auto of_sixteen = links(1, 1, 1, 1, 16);
  EXPECT_DOUBLE_EQ(of_sixteen.at("data").bytes_per_s, 4e10 * 15 / 8);
  EXPECT_DOUBLE_EQ(of_sixteen.at("data").latency_s, 1e-5 + 1e-6);
  // All of one coordinate are on hosts of their own.
  EXPECT_DOUBLE_EQ(links(8, 1, 1, 1, 4).at("data").bytes_per_s, 4e10);
  EXPECT_DOUBLE_EQ(links(8, 1, 1, 1, 4).at("data").latency_s, 1e-5 + 2e-6);
}

TEST(machine_links, the_spine_binds_where_it_is_slower_than_the_ports) {
  // 63 others: 56 beyond the host, 32 beyond the switch.
  EXPECT_DOUBLE_EQ(links(1, 1, 1, 1, 64).at("data").bytes_per_s,
                   std::min(4e10 * 63 / 56, 2e10 * 63 / 32));
}

TEST(machine_links, a_stage_sends_to_one_neighbour) {
  EXPECT_DOUBLE_EQ(links(1, 1, 1, 16, 1).at("pipeline").bytes_per_s, 4e10);
}

TEST(machine_links, what_was_measured_counts_first_and_a_network_must_be_described) {
  const auto measured =
      machine_links(machine({"machine.links=[\"data 3e-5 9e10\"]"}), {{{1, 1, 1, 1, 16}}}, kInside);
  EXPECT_DOUBLE_EQ(measured.at("data").bytes_per_s, 9e10);
  EXPECT_THROW(
      machine_links(machine({"machine.network_bytes_per_s=0"}), {{{1, 1, 1, 1, 16}}}, kInside),
      execution::Error);
}

}  // namespace
}  // namespace stowage::drivers
