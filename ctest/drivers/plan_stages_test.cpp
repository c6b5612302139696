// What stowage_plan says of stages of a pipeline, of rates that were measured, and of the largest
// that fits.
#include <algorithm>

#include "plan_text.hpp"

namespace stowage::drivers {
namespace {

using namespace test;

const Words kSixteen = kRates + Words{"train.global_batch_size=16"};

TEST(plan_stages, differ_by_what_they_have_in_flight) {
  std::vector<double> transient;
  for (const std::string stage : {"0", "1"}) {
    const std::string& text = plan(dense() + Words{"--stage", stage + "/2"} + kSixteen);
    EXPECT_TRUE(says(text, "stage " + stage + " of 2"));
    EXPECT_TRUE(says(text, "8 microbatches"));
    EXPECT_EQ(has(text.substr(0, text.find('\n')), "embedding"), stage == "0") << text;
    transient.push_back(bytes(text, "transient"));
    const Words delta = {"offload.policy=manual", "offload.modules=[\"mlp_act\"]",
                         "offload.delta_bytes_across_pp_ranks=1GiB", "offload.keep_exposed=false"};
    const std::string& kept = plan(dense() + Words{"--stage", stage + "/2"} + kSixteen + delta);
    EXPECT_EQ(has(kept, "kept by this pipeline rank"), stage == "1") << kept;
  }
  // All layers cost alike: two microbatches in flight, and one beside the head.
  const Words even = {"--stage", "0/2"}, late = {"--stage", "1/2"};
  const Words whole = {source("inputs/hybrid-dense-1b.toml")};
  EXPECT_GT(bytes(plan(whole + even + kSixteen), "transient"),
            1.5 * bytes(plan(whole + late + kSixteen), "transient"));
}

double drawn_ms(const std::string& text) { return number(text, "^# ([0-9.]+) ms without"); }

TEST(plan_stages, are_drawn) {
  const Words deck = dense("M-M-M-M-M-M-M-M-") + Words{"model.vocab_size=8192"};
  const Words timeline = deck + Words{"--timeline", "parallel.pipeline=2"};
  const auto drawn = [&](const std::string& schedule) {
    const std::string& text = plan(timeline + Words{"parallel.schedule=" + schedule} + kSixteen);
    EXPECT_EQ(find_all(text, "rank [0-9] +\\|").size(), 2U) << text;
    const std::size_t legend = text.find("microbatch\n");
    EXPECT_NE(legend, std::string::npos) << text;
    EXPECT_EQ(has(text.substr(std::min(legend, text.size())), "W"), schedule != "1f1b") << text;
    return drawn_ms(text);
  };
  const double plain = drawn("1f1b");
  EXPECT_LT(drawn("zero_bubble"), plain);
  EXPECT_EQ(drawn("auto"), drawn("zero_bubble"));
  // Passes that compute again take longer; so do steps that wait for others which do.
  const std::string& again = plan(timeline + Words{"recompute.modules=[\"mlp_act\"]"} + kSixteen);
  EXPECT_TRUE(says(again, "what is computed again"));
  EXPECT_FALSE(says(again, "h2d"));
  EXPECT_TRUE(1.02 * plain < drawn_ms(again) && drawn_ms(again) < 1.5 * plain) << again;
  const Words several = {"parallel.virtual_stages=2", "parallel.schedule=interleaved"};
  const std::string& text = plan(timeline + several + kSixteen);
  EXPECT_TRUE(says(text, "2 ranks with 2 stages each"));
  EXPECT_TRUE(says(text, "schedule interleaved"));
  EXPECT_TRUE(matches(text, "^ +\\|[01 ]*0[01 ]*1[01 ]*\\|$"));  // stages of a rank, by turns
  EXPECT_LT(drawn_ms(text), plain);
  const std::string& last = plan(deck + Words{"--stage", "1/2"} + several + kSixteen);
  EXPECT_TRUE(matches(last, "pipeline rank 1 of 2 with layers [0-9]+ to [0-9]+ and [0-9]+ to"));
  EXPECT_TRUE(says(last, "and the head"));
  EXPECT_FALSE(says(last.substr(0, last.find('\n')), "the embedding"));
}

TEST(plan_stages, that_are_none_are_refused) {
  EXPECT_TRUE(says(refusal(dense() + Words{"--stage", "2/2"} + kSixteen), "--stage 2/2"));
  EXPECT_TRUE(says(refusal(dense() + Words{"--stage", "0/8"} + kSixteen), "layers"));
  EXPECT_TRUE(says(refusal(dense() + Words{"--timeline"} + kSixteen), "parallel.pipeline"));
}

std::string published(const std::string& path) { return source("results/published/" + path); }

/// Values by key.
std::map<std::string, double> values(const std::string& text, const std::string& pattern) {
  std::map<std::string, double> all;
  for (const Words& row : find_all(text, pattern)) all[row[0]] = std::stod(row.back());
  return all;
}

TEST(plan_rates, come_from_measured_ceilings) {
  const Words ceilings = {"--ceilings", published("h200/ceilings.h5")};
  const std::string& stated = plan(tiny() + Words{"--machine", "h200", "--print-config"});
  const std::string& found = plan(dense() + ceilings + Words{"--print-config"});
  const std::string kRate = "^([a-z0-9_]+_per_s) = ([0-9.e+]+)";
  auto stated_rates = values(stated, kRate), found_rates = values(found, kRate);
  for (const std::string key :
       {"matmul_flops", "device_copy_bytes", "d2h_bytes", "h2d_bytes", "duplex_bytes"}) {
    const double quotient = found_rates[key + "_per_s"] / stated_rates[key + "_per_s"];
    EXPECT_TRUE(0.9 < quotient && quotient < 1.1) << key << ": " << quotient;
  }
  const std::string kSlowdown = "^([a-z0-9_]+_slowdown_[a-z]+) = ([0-9.]+)";
  const auto slowdowns = values(found, kSlowdown);
  EXPECT_EQ(slowdowns.size(), 4U) << found;
  for (const auto& [key, value] : values(stated, kSlowdown)) {
    ASSERT_TRUE(slowdowns.contains(key)) << key;
    EXPECT_NEAR(slowdowns.at(key), value, 0.01) << key;
  }
  for (const auto& [key, value] : slowdowns) EXPECT_GT(value, 1) << key;
  const double slow = ms(plan(dense() + ceilings + Words{"machine.matmul_flops_per_s=1e14"}));
  EXPECT_GT(slow, 2 * ms(plan(dense() + ceilings)));
  EXPECT_TRUE(says(refusal(dense() + Words{"--ceilings", published("h200/ssd.h5")}), "ceilings"));
}

TEST(plan_rates, come_from_timed_ops) {
  const Words deck = experts() + kRates +
                     Words{"machine.name=H100", "parallel.expert=2", "train.global_batch_size=4"};
  const std::string set = published("h100x2/ops_expert_moe_2b.h5");
  const std::string& said = plan(deck + Words{"--ops", set, "--print-config"});
  auto parts = values(said, "\"([a-z_]+/[a-z_]+) ([0-9.]+)\"");
  EXPECT_TRUE(0.5 < parts["attn/core_backward"] && parts["attn/core_backward"] < 0.8) << said;
  EXPECT_TRUE(0.9 < parts["attn/qkv"] && parts["attn/qkv"] < 1.1) << said;
  for (const auto& [part, value] : parts) EXPECT_FALSE(has(part, "rerun")) << part;
  const std::vector<Words> links = find_all(said, "\"any:2 all_gather ([^ ]+) ([^ \"]+)\"");
  ASSERT_FALSE(links.empty()) << said;
  const double latency_s = std::stod(links[0][0]), rate = std::stod(links[0][1]);
  EXPECT_TRUE(2e-5 < latency_s && latency_s < 6e-5) << latency_s;
  EXPECT_TRUE(1e11 < rate && rate < 4e11) << rate;
  EXPECT_GT(ms(plan(deck + Words{"--ops", set + "," + set})), 1.1 * ms(plan(deck)));
  for (const std::string line : {"mamba/scan", "mamba/scan 0", "mamba/scan 0.5 1"}) {
    const std::string why = refusal(experts() + Words{"machine.op_efficiency=[\"" + line + "\"]"});
    EXPECT_TRUE(says(why, "machine.op_efficiency"));
    EXPECT_TRUE(says(why, line));
  }
  const std::string why = refusal(experts() + Words{"--ops", published("h100x2/ceilings.h5")});
  EXPECT_TRUE(says(why, "--ops"));
  EXPECT_TRUE(says(why, "--time-ops"));
}

TEST(plan_rates, of_links_are_those_of_a_groups_size) {
  const std::string two = published("h200x4/comm_np2.h5"), four = published("h200x4/comm_np4.h5");
  const auto step_ms = [](int ranks, const std::string& files) {
    return ms(plan(
        experts() + kRates +
        Words{"machine.name=H200", "--links", files, "parallel.tensor=" + std::to_string(ranks)}));
  };
  const std::string both = two + "," + four;
  const std::string& said = plan(experts() + Words{"--links", both, "--print-config"});
  for (const std::string group : {"any", "data"})
    for (const std::string ranks : {"2", "4"})
      EXPECT_TRUE(says(said, "\"" + group + ":" + ranks + " all_gather "));
  // Two ranks are quicker by their own links than by those of four, and four have their own.
  EXPECT_EQ(step_ms(2, both), step_ms(2, two));
  EXPECT_LT(step_ms(2, two), step_ms(2, four));
  EXPECT_EQ(step_ms(4, both), step_ms(4, four));
  EXPECT_GT(step_ms(4, four), step_ms(4, two));
}

const Words kSmallTensors = {"offload.min_tensor_bytes=0"};

TEST(plan_largest, sequence_grows_with_what_leaves) {
  const Words longest = tiny() + Words{"--longest"} + kSmallTensors;
  const Words memory = {"machine.device_memory_bytes=2200MiB"};
  const std::string& text = plan(longest + memory);
  const std::string& shared = plan(longest + memory + Words{"parallel.context=2"});
  EXPECT_TRUE(says(text, "# longest sequence of tiny on one device\n"));
  EXPECT_TRUE(says(shared, "on context 2, each one"));
  std::map<std::string, double> tokens;
  for (const std::string name :
       {"all stays", "all computed again", "and states leave", "all leaves", "automatic"}) {
    const double alone = tokens[name] = number(text, "  " + name + " +([0-9]+) ");
    const double both = number(shared, "  " + name + " +([0-9]+) ");
    EXPECT_EQ(static_cast<std::int64_t>(both) % 2048, 0) << shared;
    EXPECT_TRUE(1.5 * alone < both && both < 2.1 * alone + 2048) << name << text << shared;
  }
  EXPECT_GE(tokens["all stays"], 1024) << text;
  EXPECT_LT(tokens["all stays"], tokens["all computed again"]) << text;
  EXPECT_LE(tokens["all computed again"], tokens["and states leave"]) << text;
  EXPECT_LT(tokens["all stays"], tokens["automatic"]) << text;
  const std::string& cut = plan(longest + memory + Words{"parallel.tensor=2"});
  EXPECT_GT(number(cut, "  all stays +([0-9]+) "), tokens["all stays"]) << cut;
  EXPECT_TRUE(says(refusal(tiny() + Words{"--longest"}), "machine.device_memory_bytes"));
  const std::string said = refusal(longest + memory + Words{"parallel.pipeline=2"});
  EXPECT_TRUE(says(said, "parallel.pipeline = 2"));
  EXPECT_TRUE(says(said, "allowed: 1"));
  for (const std::string more : {"--timeline", "--tensors"})
    EXPECT_TRUE(says(refusal(tiny() + Words{"--longest", more}), more));
}

TEST(plan_largest, model_grows_with_what_leaves) {
  const Words tight =
      tiny() + Words{"machine.device_memory_bytes=2056MiB", "train.seq_length=640"} + kSmallTensors;
  const auto largest = [&](const std::string& growing, const Words& more = {}) {
    return plan(tight + Words{"--largest", growing} + more);
  };
  const auto sizes = [](const std::string& text) {
    std::vector<int> all;
    for (const Words& row : find_all(text, "  (all|and) [a-z ]+ ([0-9]+) "))
      all.push_back(std::stoi(row[1]));
    return all;
  };
  const std::string depth = largest("depth");
  const std::vector<int> layers = sizes(depth);
  ASSERT_EQ(layers.size(), 3U) << depth;
  EXPECT_TRUE(4 <= layers[0] && layers[0] < layers[1] && layers[1] < layers[2]) << depth;
  EXPECT_LT(layers[2], 1024);
  EXPECT_TRUE(says(depth, "layers of tiny, M*-E over and over, on one device; 5120 tokens a step"));
  std::string pattern;  // what is found fits, one layer more does not
  for (int i = 0; i <= layers[0]; ++i) pattern += "M*-E"[i % 4];
  EXPECT_FALSE(says(too_large(tight + Words{"model.pattern=" + pattern}), "# fits"));
  pattern.pop_back();
  EXPECT_TRUE(says(plan(tight + Words{"model.pattern=" + pattern}), "# fits"));
  EXPECT_TRUE(says(largest("depth", {"offload.host_budget_bytes=1KiB"}),
                   "and states leave     not one layer"));
  const std::string width = largest("width", {"machine.device_memory_bytes=2600MiB"});
  const std::vector<int> sides = sizes(width);
  ASSERT_EQ(sides.size(), 3U) << width;
  EXPECT_TRUE(128 <= sides[0] && sides[0] < sides[1] && sides[1] <= sides[2]) << width;
  for (const int side : sides) EXPECT_EQ(side % 128, 0) << width;
  EXPECT_TRUE(says(width, "widest model of tiny, of the 4 layers M*-E, on one device"));
  // All that a layer has grows with it: heads by whole groups, others by 128.
  const auto grown = [&](const char* key, int value, int grain) {
    const int grains = (value * sides[0] + 32 * grain - 1) / (32 * grain);
    return fmt::format("model.{}={}", key, grains * grain);
  };
  const std::string& wide =
      plan(tight + Words{"machine.device_memory_bytes=2600MiB", grown("hidden_size", 32, 1),
                         grown("num_attention_heads", 4, 2), grown("mamba_num_heads", 4, 2),
                         grown("ffn_hidden_size", 48, 128), grown("moe_ffn_hidden_size", 24, 128),
                         grown("moe_shared_expert_hidden_size", 24, 128)});
  for (const Words& row : find_all(width, "  all stays +[0-9]+ +([0-9.]+ M) "))
    EXPECT_TRUE(says(wide, "# " + row[0] + " parameters"));
}

TEST(plan_largest, what_cannot_grow_is_refused) {
  const Words memory = tiny() + Words{"machine.device_memory_bytes=2056MiB"};
  EXPECT_TRUE(says(refusal(tiny() + Words{"--largest", "depth"}), "machine.device_memory_bytes"));
  EXPECT_TRUE(says(refusal(memory + Words{"--largest", "height"}),
                   "--largest height: allowed: depth, width"));
  EXPECT_TRUE(says(refusal(memory + Words{"--largest", "depth", "parallel.tensor=2"}), "tensor 2"));
  for (const std::string more : {"--timeline", "--tensors", "--longest", "--stage=0/2"})
    EXPECT_TRUE(
        says(refusal(memory + Words{"--largest", "depth", more}), more.substr(0, more.find('='))));
}

}  // namespace
}  // namespace stowage::drivers
