// stowage_plan as a planner's tool: layouts of ranks, and what a whole training takes.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "plan_text.hpp"

namespace stowage::drivers {
namespace {

using namespace test;
using Json = nlohmann::json;

/// The line that --json wrote, and the text beside it.
struct Line {
  Json json;
  std::string text;
};
Line line_of(const Words& words) {
  const std::string path = ::testing::TempDir() + "plan_layouts_test.jsonl";
  std::filesystem::remove(path);
  const PlanAnswer said = ask(words + Words{"--json", path});
  std::ifstream file(path);
  std::string line, more;
  std::getline(file, line);
  EXPECT_FALSE(std::getline(file, more)) << more;
  std::filesystem::remove(path);
  return {Json::parse(line), said.text};
}

// Parameters, MFU, days, GPU-hours and energy: on paper by the deck, the peak and the step.
TEST(plan_layouts, a_whole_training_is_priced) {
  const Words deck = {source("inputs/nemotron-nano-30b.toml")};
  const auto [plan, text] = line_of(
      deck + Words{"--machine", "h200", "--tokens", "2 T", "machine.device_memory_bytes=900GiB"});
  const auto value = [&plan = plan](const char* key) { return plan.at(key).get<double>(); };
  // Counted by hand: of 128 experts a token leaves out 122.
  EXPECT_NEAR(value("parameters") / 31.578e9, 1, 1e-3);
  const double weights = 23.0 * 128 * 2 * 2688 * 1856;
  EXPECT_NEAR(value("active_parameters") / (value("parameters") - weights * 122 / 128), 1, 1e-6);
  EXPECT_EQ(plan.at("fits"), true);
  EXPECT_EQ(plan.at("ranks"), 1);
  EXPECT_EQ(plan.at("event"), "plan");
  const double rate = value("tokens_per_s");
  EXPECT_NEAR(value("step_s") * 1e3 / ms(text), 1, 1e-4);
  EXPECT_NEAR(value("mfu") / (rate * value("model_flops_per_token") / 9.894e14), 1, 1e-9);
  EXPECT_TRUE(0.2 < value("mfu") && value("mfu") < 0.8) << plan;
  EXPECT_NEAR(value("days") / (2e12 / rate / 86400), 1, 1e-9);
  EXPECT_NEAR(value("gpu_hours") / (24 * value("days")), 1, 1e-9);
  EXPECT_NEAR(value("energy_kwh") / (0.7 * value("gpu_hours")), 1, 1e-9);
  EXPECT_TRUE(says(text, fmt::format("MFU {:.1f} %", 100 * value("mfu"))));
  EXPECT_TRUE(says(text, "# 2 T tokens: "));
  EXPECT_TRUE(says(text, "kWh of devices at 700 W"));
}

// Without a peak and a power there is no MFU and no energy, without rates no time.
TEST(plan_layouts, what_is_not_known_is_not_priced) {
  const Json rated = line_of(experts() + kRates + Words{"--tokens", "1e9"}).json;
  EXPECT_TRUE(rated.contains("days"));
  EXPECT_FALSE(rated.contains("mfu") || rated.contains("energy_kwh")) << rated;
  const Json plain = line_of(experts()).json;
  EXPECT_FALSE(plain.contains("step_s") || plain.contains("tokens_per_s")) << plain;
  for (const std::string wrong : {"0", "-1", "3X", "many", "1TT"})
    EXPECT_TRUE(says(refusal(tiny() + Words{"--tokens", wrong}), "--tokens " + wrong));
  EXPECT_TRUE(says(refusal(tiny() + Words{"--tokens", "1", "--timeline"}), "--timeline"));
}

/// Steps in ms by layout, of those that fit, in the order of the table.
std::vector<std::pair<std::string, double>> layouts(const std::string& text) {
  std::vector<std::pair<std::string, double>> all;
  for (const Words& row : find_all(text.substr(0, text.find("# the best of other kinds")),
                                   "^  ([a-z0-9].*[^ ]) +([0-9]+[.][0-9][0-9][0-9]) "))
    all.emplace_back(row[0], std::stod(row[1]));
  return all;
}

// At any batch: few plans of few microbatches, whose times are those of plans in full.
TEST(plan_layouts, are_found_quickly) {
  const Words deck = {source("inputs/hybrid-moe-2b.toml"), "--machine", "h200-cluster",
                      "train.global_batch_size=256"};
  const auto [found, text] =
      line_of(deck + Words{"--ranks", "8", "--quick", "--best", "2", "--tokens", "1T"});
  EXPECT_TRUE(says(text, "# quick: "));
  EXPECT_EQ(found.at("deck"), "hybrid-moe-2b");
  EXPECT_EQ(found.at("quick"), true);
  EXPECT_EQ(found.at("ranks"), 8);
  EXPECT_TRUE(
      says(text, fmt::format("; possible: {}, planned: {}\n", found.at("possible").get<int>(),
                             found.at("planned").get<int>())));
  ASSERT_EQ(found.at("layouts").size(), 2U) << found;
  const Json best = found["layouts"][0];
  EXPECT_LE(best.at("step_s"), found["layouts"][1].at("step_s"));
  ASSERT_FALSE(found.at("others").empty());
  for (const Json& other : found["others"]) EXPECT_NE(other.at("because"), "");
  EXPECT_GT(best.at("microbatches"), 4);
  EXPECT_GT(best.at("gpu_hours"), 0);
  // The line of keys makes this layout: a plan in full takes as long, and as much memory.
  const Words keys = best.at("keys").get<Words>();
  std::string line;
  for (const std::string& key : keys) line += (line.empty() ? "" : " ") + key;
  EXPECT_TRUE(says(text, "\n  " + line + "\n"));
  const int stages = best.at("pipeline");
  double step_ms = 0, device = 0;
  for (int stage = 0; stage < stages; stage += std::max(1, stages - 1)) {
    Words words = deck + keys;
    if (stages > 1)
      words = words + Words{"--stage", std::to_string(stage) + "/" + std::to_string(stages)};
    const std::string& whole = plan(words);
    step_ms = std::max(step_ms, ms(whole));
    device = std::max(device, bytes(whole, "all device memory"));
  }
  EXPECT_NEAR(1e3 * best.at("step_s").get<double>() / step_ms, 1, 0.05);
  EXPECT_NEAR(best.at("device_bytes").get<double>() / device, 1, 0.02);
}

TEST(plan_layouts, the_fewest_ranks_that_fit_are_found) {
  const Words tight = experts() + Words{"--machine",
                                        "h200",
                                        "machine.device_memory_bytes=8GiB",
                                        "train.global_batch_size=24",
                                        "--quick",
                                        "--best",
                                        "1"};
  const std::string& text = plan(tight + Words{"--fewest"});
  const int fewest = static_cast<int>(number(text, "^# the fewest ranks that fit: ([0-9]+)$"));
  EXPECT_TRUE(2 < fewest && fewest <= 8) << text;
  EXPECT_EQ(layouts(text).size(), 1U) << text;
  const std::string one_less = std::to_string(fewest - 1);
  EXPECT_TRUE(says(refusal(tight + Words{"--ranks", one_less}), "--ranks " + one_less + ": "));
  EXPECT_TRUE(says(refusal(tight + Words{"--fewest", "--ranks", "2"}), "--fewest"));
  EXPECT_TRUE(says(refusal(experts() + Words{"--fewest", "--quick"}), "--fewest: machine."));
  EXPECT_TRUE(says(refusal(experts() + Words{"--quick"}), "--quick"));
}

/// Four ranks of H200, by the rates alone, without what ops reach.
Words machine() {
  Words words = kRates + Words{"machine.device_memory_bytes=139GiB", "train.global_batch_size=8"};
  const std::string& file = plan(tiny() + Words{"--machine", "h200-cluster", "--print-config"});
  for (const Words& row :
       find_all(file, "^([a-z0-9_]+_per_s|[a-z]+_per_node|network_latency_s) = ([0-9.e+-]+)"))
    if (row[0] != "matmul_flops_per_s" && row[0] != "device_copy_bytes_per_s")
      words.push_back("machine." + row[0] + "=" + row[1]);
  return words;
}

Words four_ranks() { return experts("MEM*EMEM*E") + Words{"--ranks", "4"} + machine(); }

TEST(plan_layouts, are_found_and_planned) {
  const std::string& text = plan(four_ranks());
  const auto found = layouts(text);
  ASSERT_EQ(found.size(), 5U) << text;
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, &std::pair<std::string, double>::second)) << text;
  EXPECT_TRUE(std::ranges::any_of(found, [](const auto& l) {
    return l.first.starts_with("data 4");
  })) << text;
  EXPECT_TRUE(says(text, "why they lose"));
  EXPECT_FALSE(says(text, "-0.0"));
  // Other kinds stand in the order of time, and the parts that are named make up the difference.
  double last = 0;
  const auto others = find_all(text, "  ([0-9.]+) ms, \\+([0-9.]+) %(, estimated)?: (.*)");
  EXPECT_GT(others.size(), 3U) << text;
  for (const Words& other : others) {
    const double took = std::stod(other[0]);
    EXPECT_GE(took, last) << text;
    last = took;
    const double more = took * (1 - 1 / (1 + std::stod(other[1]) / 100));
    double named = 0;
    for (const Words& part : find_all(other[3], "([+-][0-9.]+) ms")) named += std::stod(part[0]);
    EXPECT_NEAR(named, more, 0.15 * more + 0.2) << other[3];
    EXPECT_FALSE(has(other[3], " others ")) << "parts that make up for each other: " << other[3];
  }
  // The search says of a layout what a plan of it says.
  for (const auto& [layout, took] : found) {
    Words keys = {"parallel.zero=1"};
    std::string stages = "1";
    for (const Words& axis : find_all(layout.substr(0, layout.find(',')), "([a-z]+) ([0-9]+)")) {
      keys.push_back("parallel." + axis[0] + "=" + axis[1]);
      if (axis[0] == "pipeline") stages = axis[1];
    }
    const auto chunks = find_all(layout, "interleaved of ([0-9]+)");
    keys.push_back(chunks.empty() ? "parallel.schedule=auto" : "parallel.schedule=interleaved");
    if (!chunks.empty()) keys.push_back("parallel.virtual_stages=" + chunks[0][0]);
    double planned = 0;
    for (const std::string& stage :
         std::set<std::string>{"0", std::to_string(std::stoi(stages) - 1)})
      planned = std::max(planned, ms(plan(experts("MEM*EMEM*E") + machine() + keys +
                                          Words{"--stage", stage + "/" + stages})));
    EXPECT_NEAR(took / planned, 1, 0.02) << layout;
  }
}

TEST(plan_layouts, obey_the_command_line) {
  const auto asked = layouts(plan(four_ranks() + Words{"parallel.tensor=2"}));
  EXPECT_FALSE(asked.empty());
  for (const auto& layout : asked) EXPECT_TRUE(says(layout.first, "tensor 2"));
  EXPECT_TRUE(says(refusal(four_ranks() + Words{"parallel.tensor=3"}),
                   "--ranks 4: no grid of the model has parallel.tensor = 3"));
  for (const Words& more : {Words{"--timeline"}, Words{"--longest"}, Words{"--stage", "0/2"}}) {
    const std::string said = refusal(four_ranks() + more);
    EXPECT_TRUE(says(said, "--ranks 4"));
    EXPECT_TRUE(says(said, "--timeline"));
  }
  const Words deck = experts() + machine();
  for (const Words& wrong :
       {Words{"--ranks", "0"}, Words{"--best", "3"}, Words{"--ranks", "4", "--best", "99"}})
    EXPECT_TRUE(says(refusal(deck + wrong), wrong[wrong.size() - 2] + " " + wrong.back()));
  // A prime, more than there are layers.
  EXPECT_TRUE(says(refusal(deck + Words{"--ranks", "37"}), "--ranks 37"));
  EXPECT_TRUE(
      says(refusal(experts() + Words{"--ranks", "4", "--machine", "h200", "parallel.data=4",
                                     "train.global_batch_size=6", "train.micro_batch_size=2"}),
           "the least is 8"));
  EXPECT_TRUE(says(refusal(experts() + Words{"--ranks", "4", "train.global_batch_size=8"}),
                   "machine.device_memory_bytes"));
  EXPECT_TRUE(says(
      refusal(four_ranks() + Words{"machine.network_bytes_per_s=0", "machine.ranks_per_node=2"}),
      "machine.network_bytes_per_s"));
}

// Exchanges between hosts are dear where the network is slow: they stay inside.
TEST(plan_layouts, stay_inside_of_hosts_on_a_slow_network) {
  const std::string& text = plan(four_ranks() + Words{"--best", "1", "machine.ranks_per_node=2",
                                                      "machine.network_bytes_per_s=1e9"});
  const auto inside = layouts(text);
  ASSERT_FALSE(inside.empty()) << text;
  EXPECT_GT(inside[0].second, layouts(plan(four_ranks()))[0].second) << text;
  for (const std::string name : {"tensor 4", "expert 4"}) EXPECT_FALSE(says(inside[0].first, name));
}

/// Of the device, of the best layout.
double device_gib(const Words& words) {
  return number(plan(words + Words{"--best", "1"}), "^  [a-z]+ [0-9].*  +([0-9.]+) +[0-9.]+$");
}

TEST(plan_layouts, fit_into_the_memory) {
  // What does not fit as the deck says is planned by the automatic policy.
  const Words tight = {"machine.device_memory_bytes=13GiB"};
  const std::string& text = plan(four_ranks() + Words{"--best", "3"} + tight);
  EXPECT_TRUE(matches(text, "^  [a-z]+ [0-9].*  offload.policy=auto$"));
  const auto found = layouts(text);
  const auto data =
      std::ranges::find_if(found, [](const auto& l) { return l.first.starts_with("data 4"); });
  ASSERT_NE(data, found.end()) << text;
  const double planned = ms(plan(experts("MEM*EMEM*E") + machine() + tight +
                                 Words{"parallel.data=4", "parallel.zero=1", "offload.policy=auto",
                                       "offload.device_budget_bytes=11GiB"}));
  EXPECT_NEAR(data->second / planned, 1, 1e-5);
  // A quick search computes all again instead; a shell takes the list of modules as one word.
  const std::string& quick = plan(four_ranks() + Words{"--quick"} + tight);
  EXPECT_TRUE(matches(quick, "^  parallel\\..* 'recompute\\.modules=\\[\"[^']*\"\\]'( |$)"))
      << quick;
  // A copy of the state for checkpoints is memory like any other.
  const Words saving = four_ranks() + Words{"checkpoint.directory=kept"};
  EXPECT_GT(device_gib(saving + Words{"checkpoint.copy=device"}),
            device_gib(saving + Words{"checkpoint.copy=host"}) + 3);
}

TEST(plan_layouts, that_fit_into_no_memory_are_refused) {
  std::string said = refusal(four_ranks() + Words{"machine.device_memory_bytes=4GiB"});
  EXPECT_TRUE(says(said, "GiB too much"));
  EXPECT_TRUE(says(said, "machine.device_memory_bytes"));
  // The state fits, the rest does not: plans were made, and the nearest one says what is missing.
  said = refusal(four_ranks() + Words{"machine.device_memory_bytes=6656MiB"});
  EXPECT_TRUE(matches(said, "the state of [1-9][0-9]* fits and [1-9][0-9]* were planned"));
  EXPECT_TRUE(says(said, "needs"));
  EXPECT_TRUE(says(said, "more, with all computed again"));
}

// Of those that one tree covers, with whole leaves on each rank.
TEST(plan_layouts, with_the_same_bits_are_found) {
  const Words deck = experts() + Words{"--machine",
                                       "h200-cluster",
                                       "--ranks",
                                       "16",
                                       "--quick",
                                       "train.global_batch_size=32",
                                       "run.same_bits=ranks"};
  const std::string& text =
      plan(deck + Words{"run.same_bits_leaves=8", "model.untie_embeddings=true"});
  EXPECT_TRUE(matches(text, "^ +(pipeline [0-9]+ x )?data [0-9]"));
  EXPECT_FALSE(matches(text, "(tensor|context|expert) [0-9]|data 16"));
  const std::string said = refusal(deck + Words{"parallel.tensor=2"});
  EXPECT_TRUE(says(said, "run.same_bits"));
  EXPECT_TRUE(says(said, "parallel.tensor = 2"));
}

}  // namespace
}  // namespace stowage::drivers
