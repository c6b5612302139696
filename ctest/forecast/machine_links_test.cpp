// Links of groups by where their ranks lie.
#include "forecast/rates/machine_links.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "ctest/results/sample_result.hpp"
#include "ctest/results/scratch_folder.hpp"
#include "execution/error.hpp"
#include "forecast/measured/measured_ops.hpp"

namespace stowage::forecast {
namespace {

constexpr offload::Link kInside{1e-5, 4e11};

/// Hosts of 8 ranks and switches of 4 hosts; a port of 40 GB/s, half of it beyond a switch.
MachineFacts machine(std::vector<std::string> overrides = {}) {
  return machine_facts(inputs::Deck::parse(
      "[model]\npattern = \"M\"\n[data]\nsource = \"synthetic\"\n"
      "[machine]\nranks_per_node = 8\nranks_per_switch = 32\nnetwork_latency_s = 1e-6\n"
      "network_bytes_per_s = 4e10\nspine_bytes_per_s = 2e10\n",
      "machine.toml", overrides));
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

TEST(machine_links, groups_of_other_sizes_may_have_other_links) {
  const auto of_data = [](int ranks, const char* lines) {
    const auto found = machine_links(machine({fmt::format("machine.links={}", lines)}),
                                     {{{1, 1, 1, 1, ranks}}}, kInside);
    offload::Rates rates;
    rates.links = found;
    return rates.link_of("data", "all_gather").bytes_per_s;
  };
  constexpr const char* kSizes =
      R"(["any:2 1e-5 5e10", "any:4 all_gather 1e-5 4e10", "any:4 1e-5 3e10", "any 1e-5 9e10"])";
  EXPECT_DOUBLE_EQ(of_data(2, kSizes), 4e10) << "of the nearest size that has the kind";
  EXPECT_DOUBLE_EQ(of_data(4, kSizes), 4e10);
  EXPECT_DOUBLE_EQ(of_data(8, kSizes), 4e10) << "the largest that is no larger";
  constexpr const char* kKinds =
      R"(["any:2 all_gather 1e-5 5e10", "any:4 all_gather 1e-5 4e10", "any 1e-5 9e10"])";
  EXPECT_DOUBLE_EQ(of_data(2, kKinds), 5e10);
  EXPECT_DOUBLE_EQ(of_data(3, kKinds), 5e10);
  EXPECT_DOUBLE_EQ(of_data(6, kKinds), 4e10);
  EXPECT_DOUBLE_EQ(of_data(4, R"(["any:4 1e-5 4e10", "data 1e-5 7e10"])"), 7e10)
      << "a group that is named has what is said of it";
  EXPECT_DOUBLE_EQ(of_data(4, R"(["data:8 1e-5 4e10", "data:2 1e-5 6e10", "any 1e-5 1e10"])"),
                   6e10);
  EXPECT_DOUBLE_EQ(of_data(4, R"(["data:4 all_reduce 1e-5 2e10", "any:4 all_gather 1e-5 4e10"])"),
                   4e10)
      << "of kinds that only others have";
  EXPECT_DOUBLE_EQ(of_data(4, R"(["data:4 all_gather 1e-5 2e10", "any:4 all_gather 1e-5 4e10"])"),
                   2e10);
  EXPECT_DOUBLE_EQ(of_data(4, R"(["any:4 1e-5 2e10", "any:4 1e-5 3e10"])"), 3e10) << "the last";
  // Stages of a pipeline meet two by two, however many there are.
  const auto stages = machine_links(
      machine({R"(machine.links=["any:2 exchange 1e-5 5e10", "any:4 exchange 1e-5 4e10"])"}),
      {{{1, 1, 1, 4, 1}}}, kInside);
  EXPECT_DOUBLE_EQ(stages.at("pipeline exchange").bytes_per_s, 5e10);
}

TEST(machine_links, a_network_between_hosts_is_not_what_groups_of_a_size_have) {
  const auto found = machine_links(machine({R"(machine.links=["any:4 1e-5 3e11"])"}),
                                   {{{1, 1, 1, 1, 16}}}, kInside);
  EXPECT_DOUBLE_EQ(found.at("data").bytes_per_s, 4e10 * 15 / 8);
}

TEST(machine_links, a_kind_of_collective_may_have_a_link_of_its_own) {
  const auto found = machine_links(
      machine({"machine.links=[\"data 3e-5 9e10\", \"data all_reduce 6e-5 4e10\", \"any "
               "all_gather 1e-5 8e10\", \"any 2e-5 7e10\"]"}),
      {{{1, 1, 1, 1, 2}}}, kInside);
  EXPECT_EQ(found.size(), 4u);
  EXPECT_DOUBLE_EQ(found.at("data all_reduce").latency_s, 6e-5);
  EXPECT_DOUBLE_EQ(found.at("any all_gather").bytes_per_s, 8e10);
  EXPECT_DOUBLE_EQ(found.at("any").bytes_per_s, 7e10);
  for (const char* key : {"machine.links", "machine.links_beside"})
    for (const char* wrong :
         {"data all_reduce 1e-5", "data all 1e-5 1e9", "date all_reduce 1 1",
          "data 1e-5 1e9 all_reduce", "data all_reduce nan 1e9", "data all_reduce 1e-5 inf",
          "data all_reduce 1e-5 1e9 1", "", "any:1 1e-5 1e9", "any: 1e-5 1e9", "any:x 1e-5 1e9",
          "any:4:2 1e-5 1e9", "any:-4 1e-5 1e9", "date:4 1e-5 1e9"})
      try {
        (void)machine({fmt::format("{}=[\"{}\"]", key, wrong)});
        ADD_FAILURE() << key << " took " << wrong;
      } catch (const execution::Error& error) {
        EXPECT_EQ(error.exit(), execution::Exit::usage);
        EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
      }
}

TEST(machine_facts, an_efficiency_is_a_kind_and_a_number_above_zero) {
  const auto parts =
      machine({"machine.op_efficiency=[\"mamba/scan 0.5\", \"head/loss 1.2\"]"}).op_efficiency;
  EXPECT_EQ(parts.size(), 2u);
  EXPECT_DOUBLE_EQ(parts.at("mamba/scan"), 0.5);
  for (const char* wrong : {"mamba/scan", "0.5", "mamba/scan 0", "mamba/scan -1", "mamba/scan inf",
                            "mamba/scan 0.5 1", "a 1\", \"a 2"})
    EXPECT_THROW((void)machine({fmt::format("machine.op_efficiency=[\"{}\"]", wrong)}),
                 execution::Error)
        << wrong;
}

TEST(machine_facts, digits_are_those_of_decimal_text) {
  for (const double value : {1.0, 7.05123456e14, 2.50005e-6, 1.00345, 9.999951e-3, 3.4e11 / 3}) {
    EXPECT_EQ(round_digits(value, kRateDigits), std::stod(fmt::format("{:.4e}", value)));
    EXPECT_EQ(round_digits(value, kEfficiencyDigits), std::stod(fmt::format("{:.3g}", value)));
  }
}

/// Facts that a deck takes are read from it to the last bit.
TEST(machine_facts, a_deck_holds_all_of_what_was_measured) {
  MachineFacts facts;
  facts.matmul_flops_per_s = round_digits(7.05123456e14, kRateDigits);
  facts.h2d_slowdown.memory = round_digits(1.0248123, kRateDigits);
  facts.links = {{"any", 4, "all_reduce", {round_digits(6.00061e-5, kRateDigits), 1.7e11}},
                 {"data", 0, "", {1.2e-5, 3.4e11}}};
  facts.links_with_compute = {{"any", 2, "exchange", {1.234e-5, 5.678e10}}};
  facts.op_efficiency = {{"mamba/scan", 0.513}, {"head/loss", 1}};
  inputs::Deck deck = inputs::Deck::parse(
      "[model]\npattern = \"M\"\n[data]\nsource = \"synthetic\"\n"
      "[machine]\nduplex_bytes_per_s = 2e10\nmatmul_flops_per_s = 1e12\n",
      "machine.toml", std::vector<std::string>{"machine.d2h_bytes_per_s=3e10"});
  deck.put({{"machine.d2h_bytes_per_s", 4e10}});
  deck.put(machine_settings(facts));
  EXPECT_EQ(deck.where("machine.links"), "command line");
  EXPECT_EQ(deck.get<std::vector<std::string>>("machine.links"),
            (std::vector<std::string>{"any:4 all_reduce 6.0006e-05 1.7000e+11",
                                      "data 1.2000e-05 3.4000e+11"}));
  EXPECT_EQ(deck.get<std::vector<std::string>>("machine.links_beside"),
            std::vector<std::string>{"any:2 exchange 1.234e-05 5.678e+10"});
  const MachineFacts read = machine_facts(deck);
  EXPECT_EQ(read.matmul_flops_per_s, facts.matmul_flops_per_s);
  EXPECT_EQ(read.d2h_bytes_per_s, 3e10) << "the command line still counts";
  EXPECT_EQ(read.duplex_bytes_per_s, 2e10);
  EXPECT_EQ(read.h2d_slowdown.memory, facts.h2d_slowdown.memory);
  EXPECT_EQ(read.op_efficiency, facts.op_efficiency);
  ASSERT_EQ(read.links.size(), 2u);
  EXPECT_EQ(read.links[0].group, "any");
  EXPECT_EQ(read.links[0].ranks, 4);
  EXPECT_EQ(read.links[0].kind, "all_reduce");
  EXPECT_EQ(read.links[0].link.latency_s, facts.links[0].link.latency_s);
  EXPECT_EQ(read.links[1].ranks, 0);
  ASSERT_EQ(read.links_with_compute.size(), 1u);
  EXPECT_EQ(read.links_with_compute[0].link.bytes_per_s, 5.678e10);
  EXPECT_THROW(deck.put({{"offload.policy", std::string("manual")}}), execution::Error)
      << "what is put is checked with the rest of the deck";
}

/// Each number of a deck is the rate that has its name, and none of another's.
TEST(machine_facts, each_number_is_one_rate) {
  using offload::Rates;
  const std::map<std::string, double (*)(const Rates&)> rates = {
      {"matmul_flops_per_s", [](const Rates& r) { return r.flops_per_s; }},
      {"device_copy_bytes_per_s", [](const Rates& r) { return r.device_bytes_per_s; }},
      {"d2h_bytes_per_s", [](const Rates& r) { return r.d2h_bytes_per_s; }},
      {"h2d_bytes_per_s", [](const Rates& r) { return r.h2d_bytes_per_s; }},
      {"duplex_bytes_per_s", [](const Rates& r) { return r.duplex_bytes_per_s; }},
      {"allreduce_bytes_per_s", [](const Rates& r) { return r.link.bytes_per_s; }},
      {"d2h_slowdown_arithmetic", [](const Rates& r) { return r.d2h_slowdown.arithmetic; }},
      {"d2h_slowdown_memory", [](const Rates& r) { return r.d2h_slowdown.memory; }},
      {"h2d_slowdown_arithmetic", [](const Rates& r) { return r.h2d_slowdown.arithmetic; }},
      {"h2d_slowdown_memory", [](const Rates& r) { return r.h2d_slowdown.memory; }},
      {"copy_latency_s", [](const Rates& r) { return r.copy_latency_s; }}};
  const auto usual = machine_rates(machine({"machine.name=it"}), {});
  for (const auto& [key, rate] : rates) {
    const auto found = machine_rates(machine({"machine.name=it", "machine." + key + "=3"}), {});
    for (const auto& [other, held] : rates)
      EXPECT_EQ(held(found), other == key ? 3 : held(usual)) << key << ", " << other;
  }
  EXPECT_EQ(machine_rates(machine({"machine.copy_latency_s=3"}), {}).copy_latency_s,
            Rates{}.copy_latency_s)
      << "of a machine without a name";
}

/// A result set of two ranks with timed ops.
void write_ops(const std::filesystem::path& path, const std::vector<results::Samples>& ops) {
  results::ResultHeader header = results::test::sample_header();
  header.deck_resolved = inputs::Deck::parse(
                             "[model]\npattern = \"M\"\n[data]\n"
                             "source = \"synthetic\"\n",
                             "two.toml")
                             .text();
  results::ResultSet set(path, header);
  results::test::fill(set, {});
  for (const results::Samples& op : ops) set.add(op);
  set.finish(results::test::good_verdict());
}

results::Samples op(const std::string& kind, const char* queue, double calls, double bytes,
                    double time_s) {
  return {.path = "ops/" + kind,
          .time_s = {time_s, time_s, time_s},
          .attributes = {{"queue", std::string(queue)},
                         {"calls", calls},
                         {"flops", 0.0},
                         {"bytes", bytes},
                         {"idle_flops", 0.0},
                         {"apart_bytes", 0.0},
                         {"more_kernels", 0.0}}};
}

/// Datasets hold sums over the calls of a step.
TEST(measured_ops, efficiencies_and_links_are_those_of_one_call) {
  const results::test::ScratchFolder folder;
  constexpr double kLatency = 2e-5, kRate = 1e10;
  std::vector<results::Samples> ops = {op("norm", "compute", 4, 4e9, 8e-3)};
  for (const double calls : {1.0, 2.0, 5.0}) {
    const double bytes = 1e6 * calls;
    ops.push_back(op("sum" + std::to_string(static_cast<int>(calls)), "comm data", calls,
                     calls * bytes, calls * (kLatency + bytes / kRate)));
    ops.back().attributes.push_back({"collective", std::string("all_reduce")});
  }
  write_ops(folder / "ops.h5", ops);
  MachineFacts facts;
  facts.device_copy_bytes_per_s = 1e12;
  const MachineFacts found = measured_ops({(folder / "ops.h5").string()}, facts);
  ASSERT_EQ(found.op_efficiency.size(), 1u);
  const double expected_s = 4 * machine_rates(facts, {}).roofline_s({.flops = 0, .bytes = 1e9});
  EXPECT_EQ(found.op_efficiency.at("norm"), round_digits(expected_s / 8e-3, kEfficiencyDigits));
  ASSERT_EQ(found.links_with_compute.size(), 1u);
  const GroupLink& link = found.links_with_compute[0];
  EXPECT_EQ(link.group, "any");
  EXPECT_EQ(link.ranks, 2);
  EXPECT_EQ(link.kind, "all_reduce");
  EXPECT_DOUBLE_EQ(link.link.latency_s, kLatency);
  EXPECT_DOUBLE_EQ(link.link.bytes_per_s, kRate);
}

}  // namespace
}  // namespace stowage::forecast
