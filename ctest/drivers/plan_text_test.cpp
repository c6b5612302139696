// What stowage_plan says of a plan, and what it refuses.
#include <filesystem>
#include <set>

#include "plan_text.hpp"

namespace stowage::drivers {
namespace {

using namespace test;

constexpr double kGiB = 1 << 30;

TEST(plan_text, standard_decks_are_planned) {
  for (const char* deck : {"quickstart", "dense-124m", "hybrid-dense-1b", "hybrid-moe-2b"}) {
    const std::string& text = plan(Words{source("inputs/") + deck + ".toml"} + kRates);
    EXPECT_TRUE(says(text, "proven"));
    EXPECT_TRUE(says(text, "GiB +---"));
    EXPECT_GT(bytes(text, "transient"), 0);
    EXPECT_GT(ms(text), 0);
  }
}

// A binary counter of the leaves of a rank: log2 of them in partial gradients.
TEST(plan_text, the_same_bits_have_a_price) {
  struct Tree {
    int batch, leaves, kept;
  };
  for (const auto& [batch, leaves, kept] :
       {Tree{2, 1, 0}, Tree{4, 2, 1}, Tree{16, 8, 3}, Tree{16, 2, 1}}) {
    const Words keys =
        dense() + Words{"train.global_batch_size=" + std::to_string(batch), "--machine", "h200"};
    const int each = batch / 2 / leaves;
    Words same = keys + Words{"run.same_bits=ranks"};
    if (each > 1) same.push_back("run.same_bits_leaves=" + std::to_string(leaves));
    const std::string &text = plan(same), &by_rank = plan(keys);
    const double gradients = bytes(text, "gradients");
    const double partial = has(text, "  partial gradients ") ? bytes(text, "partial gradients") : 0;
    EXPECT_NEAR(partial, kept * gradients, 0.001 * gradients) << text;
    EXPECT_TRUE(matches(text, "# same bits on any ranks: tree of " + std::to_string(leaves) +
                                  " lea[a-z]+, " + std::to_string(each) + " micro"));
    EXPECT_FALSE(says(by_rank, "partial gradients"));
    EXPECT_FALSE(says(by_rank, "same bits"));
    EXPECT_GE(bytes(text, "transient"), bytes(by_rank, "transient") + partial - gradients);
    const double slower = ms(text) / ms(by_rank);
    EXPECT_TRUE(0.99 < slower && slower < 1.05) << batch << ": " << slower;
  }
}

TEST(plan_text, a_plan_says_whether_it_fits) {
  const Words deck = dense(), h200 = {"--machine", source("inputs/machines/h200-cluster.toml")};
  EXPECT_TRUE(says(plan(deck), "no time is predicted"));
  EXPECT_FALSE(matches(plan(deck), "[0-9] ms|fits?: "));
  const std::string& text = plan(deck + h200);
  EXPECT_TRUE(says(text, "\n# fits: "));
  EXPECT_TRUE(says(text, "# predicted time on H200 cluster"));
  EXPECT_EQ(plan(deck + Words{"--machine", "h200-cluster"}), text);
  EXPECT_EQ(ms(text), ms(plan(deck + h200 + kRates)));

  const Words small = {"machine.device_memory_bytes=12GiB"};
  const std::string said = too_large(deck + h200 + small);
  EXPECT_TRUE(matches(said, "^# does not fit: [0-9.]+ GiB, H200 cluster has 12.0 GiB"));
  const Words help = {"offload.policy=auto",
                      "offload.device_budget_bytes=" + std::to_string(std::int64_t{10} << 30)};
  EXPECT_TRUE(says(said, help[0] + " " + help[1]));
  EXPECT_TRUE(matches(said, "^# [0-9]+ M parameters, of which a token meets [0-9]+ M; "));
  const std::string& helped = plan(deck + h200 + help + small);
  EXPECT_TRUE(says(helped, "\n# fits: "));
  const double price = number(said, "GiB pinned, a step of ([0-9.]+) s, [0-9]+ tokens/s$");
  EXPECT_NEAR(1e3 * price, ms(helped), 1) << said;  // the first
  EXPECT_TRUE(matches(said, "^  device +\\|p+g+s+\\.+\\| [0-9.]+ of 12.0 GiB$"));
}

TEST(plan_text, weights_leave_where_nothing_else_fits) {
  const std::string said = too_large(dense() + Words{"machine.device_memory_bytes=5GiB"});
  EXPECT_TRUE(says(said, "offload.states=auto")) << said;
  const std::string& away =
      plan(dense() + Words{"machine.device_memory_bytes=5GiB", "offload.states=auto",
                           "offload.policy=auto", "offload.device_budget_bytes=3GiB"});
  EXPECT_LE(bytes(away, "all device memory"), 3 * kGiB);
  EXPECT_TRUE(matches(away, "^    gradients +[1-9]")) << away;
}

TEST(plan_text, what_no_memory_could_hold_needs_more_ranks) {
  const std::string said = too_large(dense() + Words{"machine.device_memory_bytes=3GiB"});
  const std::size_t helps = said.find("# it fits by");
  ASSERT_NE(helps, std::string::npos) << said;
  EXPECT_FALSE(says(said.substr(helps), "offload."));
  EXPECT_TRUE(says(said, "--ranks N"));
  const std::string& away =
      plan(dense() + Words{"machine.device_memory_bytes=26GiB", "offload.states=all"});
  EXPECT_TRUE(matches(away, "^  host +\\|s+ *\\| [0-9.]+ GiB$"));
}

TEST(plan_text, machines_are_named) {
  EXPECT_TRUE(says(refusal(dense() + Words{"--machine", dense()[0]}), "--machine"));
  const std::string said = refusal(dense() + Words{"--machine", "h300"});
  EXPECT_TRUE(says(said, "--machine h300"));
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(source("inputs/machines")))
    names.insert(file.path().stem().string());
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  EXPECT_TRUE(says(said, list));
  EXPECT_TRUE(says(refusal(dense() + Words{"--machine", "nowhere.toml"}), "nowhere.toml"));
  for (const Words& option : {Words{"--timeline", "parallel.pipeline=2"}, Words{"--ranks", "2"}}) {
    const std::string why = refusal(dense() + option + Words{"machine.device_memory_bytes=139GiB"});
    EXPECT_TRUE(says(why, option[0]));
    EXPECT_TRUE(says(why, "machine.matmul_flops_per_s"));
  }
}

TEST(plan_text, a_smaller_budget_takes_less_and_lasts_longer) {
  const Words automatic = dense() + Words{"offload.policy=auto"};
  const std::string& free = plan(automatic + kRates);
  EXPECT_LT(bytes(free, "transient"), bytes(plan(dense()), "transient"));
  EXPECT_LT(ms(free, "waiting for copies"), 1e-3);
  double last = 0;
  for (const int budget : {13, 11, 10}) {
    const std::string& text =
        plan(automatic + Words{"offload.device_budget_bytes=" + std::to_string(budget) + "GiB"} +
             kRates);
    EXPECT_LE(bytes(text, "all device memory"), budget * kGiB);
    EXPECT_GE(ms(text), last) << budget;
    last = ms(text);
  }
  EXPECT_GT(last, ms(free));
}

TEST(plan_text, every_tensor_is_listed_with_its_reason) {
  const std::string& text = plan({source("inputs/quickstart.toml"), "--tensors",
                                  "offload.policy=manual", "offload.modules=[\"mamba_conv\"]",
                                  "offload.min_tensor_bytes=0", "offload.keep_exposed=false"});
  EXPECT_TRUE(matches(text, "layers.0.mamba/in_proj_out +mamba_conv +[0-9]+ B +leaves +listed"));
  EXPECT_TRUE(matches(text, "layers.0.mamba/gated +mamba_out_proj +[0-9]+ B +stays +not listed"));
}

TEST(plan_text, a_fused_mixer_saves_no_convolution) {
  const Words fused = {source("inputs/quickstart.toml"), "model.mamba_mixer=fused",
                       "offload.policy=manual",          "offload.min_tensor_bytes=0",
                       "offload.keep_exposed=false",     "--tensors"};
  const std::string& conv = plan(fused + Words{"offload.modules=[\"mamba_conv\"]"});
  EXPECT_TRUE(matches(conv, "  mamba_conv +0.000  nothing saved"));
  EXPECT_FALSE(matches(conv, "[0-9] B +leaves"));
  EXPECT_FALSE(says(conv, "/xBC "));
  const std::string& ssm = plan(fused + Words{"offload.modules=[\"mamba_ssm\"]"});
  for (const std::string tensor : {"in_proj_out", "scan_out"})
    EXPECT_TRUE(matches(ssm, "layers.0.mamba/" + tensor + " +mamba_ssm +[0-9]+ B +leaves +listed"));
  EXPECT_FALSE(says(plan(dense()), "nothing saved"));
  EXPECT_LT(bytes(plan(dense() + Words{"model.mamba_mixer=fused"}), "transient"),
            bytes(plan(dense()), "transient"));
}

TEST(plan_text, what_cannot_be_is_refused) {
  std::string said =
      refusal(dense() + Words{"offload.policy=auto", "offload.device_budget_bytes=8GiB"});
  EXPECT_TRUE(says(said, "missing"));
  EXPECT_TRUE(says(said, "the rest is"));
  EXPECT_TRUE(says(refusal(dense() + Words{"recompute.modules=[\"attn_norm\"]"}), "attn_norm"));
  for (const Words& axes :
       {Words{"tensor", "context", "expert", "pipeline"}, Words{"tensor", "pipeline"}}) {
    Words words = dense();
    for (const std::string& axis : axes) words.push_back("parallel." + axis + "=65536");
    said = refusal(words);
    EXPECT_TRUE(says(said, "parallel.tensor = 65536"));
    EXPECT_TRUE(says(said, "no machine has more"));
  }
  const std::string deck = dense()[0];
  said = refusal(dense() + kRates + Words{"parallel.pipeline=2", "--timeline", "--trace", deck});
  EXPECT_TRUE(says(said, "--trace " + deck + ": would replace the deck " + deck));
}

/// Rows of bytes by their names.
std::map<std::string, std::int64_t> memory_rows(const std::string& text) {
  std::map<std::string, std::int64_t> rows;
  for (const Words& row : find_all(text, "^  ([a-z]+( [a-z]+)*) +([0-9]+) B "))
    rows[row[0]] = std::stoll(row[2]);
  return rows;
}

TEST(plan_text, a_copy_of_the_state_is_planned) {
  const Words saving = tiny() + Words{"checkpoint.directory=ckpt"};
  const std::string kCopy = "copy for checkpoints", kAll = "all device memory",
                    kHost = "pinned host memory";
  auto plain = memory_rows(plan(tiny()));
  EXPECT_FALSE(plain.contains(kCopy));
  auto copied = memory_rows(plan(saving + Words{"checkpoint.copy=device"}));
  const std::int64_t copy = copied[kCopy], device = copied[kAll];
  EXPECT_EQ(device, plain[kAll] + copy);
  // All that outlives a step but the gradients, which differ from it by padding only.
  const std::int64_t state = plain["parameters"] + plain["optimizer states"];
  EXPECT_TRUE(state / 4 < copy && copy <= state) << copy << " of " << state;
  auto on_host = memory_rows(plan(saving + Words{"checkpoint.copy=host"}));
  EXPECT_EQ(on_host[kAll], plain[kAll]);
  EXPECT_EQ(on_host[kHost], copied[kHost] + copy);
  // With less than there must be: auto takes the host if it may, and `device` is refused.
  const auto memory = [&](std::int64_t bytes) {
    return Words{"machine.device_memory_bytes=" + std::to_string((std::int64_t{1} << 31) + bytes)};
  };
  EXPECT_EQ(memory_rows(plan(saving + memory(device))), copied);
  EXPECT_EQ(memory_rows(plan(saving + Words{"checkpoint.copy=device"} + memory(device))), copied);
  auto none = memory_rows(plan(saving + memory(device - 1)));
  EXPECT_EQ(none[kAll], plain[kAll]);
  EXPECT_FALSE(none.contains(kCopy));
  EXPECT_EQ(
      memory_rows(plan(saving + Words{"checkpoint.host_budget_bytes=" + std::to_string(copy)} +
                       memory(device - 1))),
      on_host);
  const std::string said = refusal(saving + Words{"checkpoint.copy=device"} + memory(device - 1));
  for (const std::string& word :
       {std::string("checkpoint.copy"), std::to_string(copy) + " bytes",
        std::to_string(copy - 1) + " of", std::string("\"host\", \"none\"")})
    EXPECT_TRUE(says(said, word));
}

TEST(plan_text, a_copy_of_the_state_counts_in_a_budget) {
  const auto budget = [](int gib) {
    return Words{"offload.policy=auto",
                 "offload.device_budget_bytes=" + std::to_string(gib) + "GiB"};
  };
  const Words saving = dense() + Words{"checkpoint.directory=ckpt"};
  const Words on_device = saving + Words{"checkpoint.copy=device"};
  auto plain = memory_rows(plan(dense() + budget(12)));
  auto copied = memory_rows(plan(on_device + budget(16)));
  const std::int64_t copy = copied["copy for checkpoints"];
  EXPECT_LE(static_cast<double>(copied["all device memory"]), 16 * kGiB);
  EXPECT_GT(copied["transient"], 0);
  EXPECT_GT(copied["all device memory"], copy + plain["parameters"]);
  auto with_auto = memory_rows(plan(saving + budget(12)));  // takes what the plan leaves: none
  EXPECT_EQ(with_auto["all device memory"], plain["all device memory"]);
  const std::string said = refusal(on_device + budget(12));
  for (const std::string& word :
       {std::string("offload.device_budget_bytes"), std::string("checkpoint.copy = \"device\""),
        std::to_string(copy) + " bytes"})
    EXPECT_TRUE(says(said, word));
}

TEST(plan_text, exchanges_of_context_ranks_are_compared) {
  const auto taken = [](const Words& more) {
    const std::string& text =
        plan(dense() + Words{"parallel.context=2", "train.micro_batch_size=1"} + more);
    EXPECT_TRUE(says(text, "# attention over 2 context ranks"));
    return find_all(text, "^  (all_[a-z_]+) .*  taken$");
  };
  const std::vector<Words> to_all = {{"all_to_all"}}, gather = {{"all_gather"}};
  EXPECT_EQ(taken({"machine.matmul_flops_per_s=1e12"}), to_all);
  EXPECT_EQ(taken({"parallel.context_attention=all_gather"}), gather);
  EXPECT_FALSE(says(plan(dense()), "context ranks"));
}

TEST(plan_text, exchanges_of_experts_are_compared) {
  const auto check = [](int ranks, const Words& more, const std::string& wanted, bool slots) {
    const std::string& text = plan(
        experts() +
        Words{"train.global_batch_size=16", "parallel.expert=" + std::to_string(ranks)} + more);
    EXPECT_TRUE(says(text, "# experts over " + std::to_string(ranks) + " ranks"));
    EXPECT_EQ(find_all(text, "^  (all_[a-z_]+) .*  taken$"), std::vector<Words>{{wanted}}) << text;
    EXPECT_EQ(has(text, " slots "), slots) << text;
  };
  check(2, {}, "all_gather", false);
  check(8, {}, "all_to_all", true);
  check(8, {"parallel.expert_exchange=all_gather"}, "all_gather", false);
  EXPECT_FALSE(says(plan(experts() + Words{"train.global_batch_size=16"}), "# experts"));
}

TEST(plan_text, reductions_and_capacities_are_planned) {
  const std::string& alone = plan(tiny() + Words{"train.global_batch_size=8"});
  const std::string& shared = plan(tiny() + Words{"train.global_batch_size=16", "parallel.data=2",
                                                  "graphs.max_packed_seqs=[4, 16]"});
  EXPECT_GT(number(shared, "([0-9]+) ops, proven"), number(alone, "([0-9]+) ops, proven"));
  std::vector<Words> programs;
  for (const Words& row : find_all(shared, "^  ([a-z]+), ([0-9]+) documents +([0-9.]+) [KMG]iB")) {
    programs.push_back({row[0], row[1]});
    EXPECT_GT(std::stod(row[2]), 0) << shared;
  }
  const std::vector<Words> wanted = {// as many documents as the data have
                                     {"training", "4"},
                                     {"training", "6"},
                                     {"evaluation", "4"},
                                     {"evaluation", "6"}};
  EXPECT_EQ(programs, wanted) << shared;
  EXPECT_FALSE(says(plan(tiny() + Words{"data.held_out_fraction=0"}), "evaluation"));
}

TEST(plan_text, a_slowdown_of_one_is_believed) {
  Words unslowed, unknown;
  for (const std::string direction : {"d2h", "h2d"})
    for (const std::string bound : {"arithmetic", "memory"}) {
      unslowed.push_back("machine." + direction + "_slowdown_" + bound + "=1");
      unknown.push_back("machine." + direction + "_slowdown_" + bound + "=0");
    }
  const Words deck =
      dense() + Words{"offload.policy=manual", "offload.modules=[\"mlp_act\"]"} + kRates;
  for (const Words& name : {Words{}, Words{"machine.name="}}) {
    const double fast = ms(plan(deck + name + unslowed)), slow = ms(plan(deck + name + unknown));
    EXPECT_TRUE(fast < slow && slow < 1.1 * fast) << fast << ", " << slow;
  }
  EXPECT_TRUE(
      says(refusal(tiny() + Words{"machine.d2h_slowdown_arithmetic=0.9"}), "{0} or [1, inf)"));
}

TEST(plan_text, graphs_that_fork_are_counted) {
  const auto counted = [](const std::string& mode, const Words& policy) {
    const std::string& text = plan(tiny() +
                                   Words{"train.global_batch_size=16", "parallel.data=2",
                                         "graphs.mode=" + mode, "graphs.scopes=[\"layer\"]"} +
                                   policy);
    const std::vector<Words> found =
        find_all(text, "([0-9]+) graphs; copies inside ([0-9]+), collectives inside ([0-9]+)");
    EXPECT_EQ(found.size(), 1U) << text;
    return found.empty() ? Words{"0", "0", "0"} : found.front();
  };
  const Words none = {"offload.policy=auto"};
  const Words scopes = counted("scopes", none), step = counted("step", none);
  EXPECT_GT(std::stoi(scopes[0]), 1);
  EXPECT_EQ(scopes[1] + scopes[2], "00");
  EXPECT_GE(std::stoi(step[0]), 1);
  EXPECT_GT(std::stoi(step[2]), 0);
  const Words moved =
      counted("step", {"offload.policy=manual", "offload.keep_exposed=false",
                       "offload.modules=[\"mlp_act\"]", "offload.min_tensor_bytes=0"});
  EXPECT_GT(std::stoi(moved[1]), 0);
}

}  // namespace
}  // namespace stowage::drivers
