#include "results/console.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "execution/error.hpp"
#include "results/format.hpp"
#include "results/progress.hpp"
#include "scratch_folder.hpp"

namespace stowage::results {
namespace {

using test::expect_error;

TEST(format, numbers_keep_three_digits) {
  EXPECT_EQ(si(21874), "21.9 k");
  EXPECT_EQ(si(999.9), "1.00 k");
  EXPECT_EQ(si(0), "0");
  EXPECT_EQ(si(-1.5e12), "-1.50 T");
  EXPECT_EQ(si(0.0031), "3.10 m");
  EXPECT_EQ(si(42), "42");
  EXPECT_EQ(si(std::nan("")), "nan");
}

TEST(format, quantities_carry_their_unit) {
  EXPECT_EQ(quantity(0.749, "s"), "749 ms");
  EXPECT_EQ(quantity(12, "s"), "12 s");
  EXPECT_EQ(quantity(21874, "1/s"), "21.9 k/s");
  EXPECT_EQ(quantity(55.5 * (1 << 30), "B"), "55.5 GiB");
  EXPECT_EQ(quantity(412e12, "FLOP/s"), "412 TFLOP/s");
  EXPECT_EQ(quantity(2.25, "nat"), "2.2500 nat");
  EXPECT_EQ(quantity(2.25, "nat/token"), "2.2500 nat/token");
  EXPECT_EQ(quantity(0.7490004, "1"), "0.749");
  EXPECT_EQ(quantity(2, "1"), "2");
  EXPECT_EQ(quantity(std::nan(""), "s"), "nan");
}

TEST(format, times_left) {
  EXPECT_EQ(clock_time(41), "00:41");
  EXPECT_EQ(clock_time(3599.6), "1:00:00");
  EXPECT_EQ(clock_time(7325), "2:02:05");
  EXPECT_EQ(clock_time(std::nan("")), "--:--");
}

TEST(format, now_is_iso_8601) {
  const std::string now = utc_now();
  ASSERT_EQ(now.size(), std::string("2031-05-04T12:00:00.000Z").size());
  EXPECT_EQ(now[10], 'T');
  EXPECT_EQ(now.back(), 'Z');
}

TEST(metric, registered_tags_have_unit_and_direction) {
  const Metric loss = metric("train/val_loss", 2.1);
  EXPECT_EQ(loss.unit, "nat");
  EXPECT_EQ(loss.better, Better::lower);
  EXPECT_EQ(metric("kernels/ssd_fwd/bf16_t8192/time", 1e-3).unit, "s");
  expect_error(execution::Exit::runtime, {"train/no_such"}, [] { metric("train/no_such", 1); });
}

TEST(metric, stars_stand_for_parts) {
  EXPECT_EQ(metric("ceilings/h2d/bandwidth", 1).help, "measured copy rate");
  EXPECT_EQ(metric("packing/8/steps", 1).better, Better::neither);
  EXPECT_EQ(metric("offload/keep/off/added", 1).unit, "1");
  for (const char* tag : {"ceilings/h2d/deep/bandwidth", "packing//steps", "kernels/ssd/time",
                          "train", "train/step_time/", "offload/added"})
    expect_error(execution::Exit::runtime, {tag, "metrics.toml"}, [&] { metric(tag, 1); });
}

TEST(metric, a_time_keeps_the_interval_and_a_rate_inverts_it) {
  const Summary time{.count = 9, .median = 0.5, .ci95 = {0.4, 0.8}};
  const Metric kept = metric("train/step_time", time);
  EXPECT_EQ(kept.value, 0.5);
  EXPECT_EQ(kept.ci95.low, 0.4);
  EXPECT_EQ(kept.ci95.high, 0.8);
  EXPECT_EQ(kept.median_of, 9);
  const Metric rate = rate_metric("train/tokens_per_s", 100, time);
  EXPECT_DOUBLE_EQ(rate.value, 200);
  EXPECT_DOUBLE_EQ(rate.ci95.low, 125);
  EXPECT_DOUBLE_EQ(rate.ci95.high, 250);
  EXPECT_EQ(rate.median_of, 9);
}

TEST(verdict, follows_from_the_checks) {
  Verdict verdict;
  EXPECT_EQ(verdict.outcome(), Outcome::invalid) << "nothing was checked";
  verdict.add(at_most("loss", 2.1, 2.2, "last loss"));
  EXPECT_EQ(verdict.outcome(), Outcome::valid);
  verdict.stop();
  EXPECT_EQ(static_cast<int>(verdict.exit()), 75);
  verdict.add(equal("bitwise", 1, 0, "differing bytes"));
  EXPECT_EQ(verdict.outcome(), Outcome::invalid) << "a failed check beats a stop";
  EXPECT_EQ(static_cast<int>(verdict.exit()), 1);
}

TEST(verdict, limits_are_inclusive_and_nan_fails) {
  EXPECT_TRUE(at_least("a", 1, 1, "").passed());
  EXPECT_FALSE(at_least("a", 0.999, 1, "").passed());
  EXPECT_TRUE(between("a", 2, 1, 3, "").passed());
  EXPECT_FALSE(between("a", 3.01, 1, 3, "").passed());
  for (const Check& check : {at_most("a", std::nan(""), 1, ""), at_least("a", std::nan(""), 1, ""),
                             equal("a", std::nan(""), 0, "")})
    EXPECT_FALSE(check.passed());
  EXPECT_EQ(between("a", 0, 3.9, 4.1, "").threshold(), "3.9..4.1");
  EXPECT_EQ(at_most("a", 0, 2.2, "").threshold(), "<= 2.2");
}

TEST(console, any_finite_value_is_called_so) {
  Verdict verdict;
  verdict.add(at_most("finite_loss", 2.1, std::numeric_limits<double>::max(), "loss"));
  const std::string text = validation_text(verdict);
  EXPECT_NE(text.find("2.1  finite            PASSED\n"), std::string::npos) << text;
  EXPECT_EQ(verdict.checks()[0].threshold(), "<= 1.7976931348623157e+308");  // as files have it
}

TEST(console, verdict_line_is_made_for_grep) {
  Verdict verdict;
  verdict.add(at_most("loss", 2.1, 2.2, "last loss"));
  const Metric rate =
      rate_metric("train/tokens_per_s", 1000, {.count = 9, .median = 0.5, .ci95 = {0.4, 0.8}});
  EXPECT_EQ(verdict_line(verdict, rate, "1234", "out/run.h5"),
            "STOWAGE RESULT VALID  train/tokens_per_s=2000  units=1/s  ci95=1250..2500  uuid=1234"
            "  file=out/run.h5\n");
  verdict.remark("not official: 42 s < 600 s");
  EXPECT_EQ(verdict_line(verdict, metric("train/val_loss", 2.1), "1", "a.h5"),
            "STOWAGE RESULT VALID (not official: 42 s < 600 s)  train/val_loss=2.1  units=nat"
            "  uuid=1  file=a.h5\n");
  EXPECT_EQ(verdict_line(verdict, {}, "1", "a.h5"),
            "STOWAGE RESULT VALID (not official: 42 s < 600 s)  uuid=1  file=a.h5\n");
}

TEST(console, validation_table_names_failures) {
  Verdict verdict;
  verdict.add(at_most("val_loss", 2.5, 2.2, "last loss"));
  verdict.add(equal("skipped_steps", 0, 0, "count"));
  const std::string text = validation_text(verdict);
  EXPECT_NE(text.find("val_loss                2.5  <= 2.2            FAILED"), std::string::npos)
      << text;
  EXPECT_NE(text.find("PASSED"), std::string::npos);
}

TEST(console, header_and_ranks_are_comments) {
  RunInfo run{.uuid = "1", .start = "now", .argv = {"a"}, .ranks = 2, .seed = 5};
  std::vector<RankInfo> ranks(2);
  ranks[0].host = ranks[1].host = "n1";
  ranks[0].cpu_model = "fast", ranks[1].cpu_model = "slow";
  ranks[1].rank = 1;
  ranks[0].gpu_links = "1 NV18 by switch";
  ranks[0].gpu_unreached = "1";
  const std::string text =
      header_text("stowage_train", run, ranks,
                  {{"model", std::string("M*")}, {"TFLOP/step/rank", 0.012439938142}}) +
      ranks_text(ranks);
  EXPECT_NE(text.find("TFLOP/step/rank  0.01244\n"), std::string::npos) << text;
  EXPECT_NE(text.find("np 2 on 1 host  seed 5"), std::string::npos) << text;
  EXPECT_NE(text.find("# WARN rank"), std::string::npos) << text;
  EXPECT_NE(text.find("# links of ranks 0-1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# WARN ranks 0 and 1: their GPUs"), std::string::npos) << text;
  for (std::size_t line = 0; line != std::string::npos && line < text.size();
       line = text.find('\n', line) + 1)
    EXPECT_EQ(text[line], '#') << text.substr(line, 40);
}

struct Printed {
  Printed() : file(std::fopen((folder / "out").c_str(), "w")) {}
  std::string text() {
    std::fclose(file);
    return test::read_all(folder / "out");
  }
  test::ScratchFolder folder;
  std::FILE* file;
};

TEST(progress, log_has_plain_lines_at_intervals_and_the_last_step) {
  Printed printed;
  double now = 100;
  {
    Progress progress(
        {.last_step = 20, .tokens_per_step = 21900, .out = printed.file, .clock = [&now] {
           return now;
         }});
    for (int step = 1; step <= 20; ++step, now += 1)
      progress.update({step, 3.4119, 3e-4, 0.8712, 1.0});
  }
  EXPECT_EQ(
      printed.text(),
      "step 1/20 5.0 % | loss 3.412 | lr 0.0003 | norm 0.871 | 21.9 k tok/s | left 00:19\n"
      "step 11/20 55.0 % | loss 3.412 | lr 0.0003 | norm 0.871 | 21.9 k tok/s | left 00:09\n"
      "step 20/20 100.0 % | loss 3.412 | lr 0.0003 | norm 0.871 | 21.9 k tok/s | left 00:00\n");
}

TEST(progress, terminal_has_one_updating_line_and_whole_notes) {
  Printed printed;
  double now = 0;
  {
    Progress progress({.first_step = 4,
                       .last_step = 6,
                       .tokens_per_step = 10,
                       .out = printed.file,
                       .terminal = true,
                       .clock = [&now] { return now; }});
    progress.update({5, 2, 0.01, 1, 0.5});
    progress.note("val_loss 2.0");
    now = 1;
    progress.update({6, 2, 0.01, 1, 0.5}, "ckpt");
  }
  const std::string line5 =
      "\r\x1b[Kstep 5/6 83.3 % | loss 2.000 | lr 0.01 | norm 1 | 20 tok/s | left 00:01";
  const std::string line6 =
      "\r\x1b[Kstep 6/6 100.0 % | loss 2.000 | lr 0.01 | norm 1 | 20 tok/s | left 00:00 | ckpt\n";
  EXPECT_EQ(printed.text(), line5 + "\r\x1b[Kval_loss 2.0\n" + line5 + line6);
}

TEST(progress, one_slow_step_does_not_move_the_time_left) {
  Progress progress({.last_step = 100, .out = nullptr});
  for (int step = 1; step <= 9; ++step) progress.update({step, 1, 0, 0, 2.0});
  progress.update({10, 1, 0, 0, 500.0});
  EXPECT_DOUBLE_EQ(progress.left_s(), 180);
}

}  // namespace
}  // namespace stowage::results
