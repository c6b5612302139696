// What stowage_bench_comm makes of options and of measured times.
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "drivers/bench_comm/report.hpp"
#include "forecast/rates/link_fit.hpp"

namespace stowage::drivers {
namespace {

std::string refusal(const std::function<void()>& call,
                    execution::Exit exit = execution::Exit::usage) {
  try {
    call();
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), exit) << error.what();
    return error.what();
  }
  return "";
}

TEST(comm_report, sizes_are_those_of_nccl_tests) {
  EXPECT_EQ(sizes({"1K", "1G", 4}, 2).size(), 11U);
  EXPECT_EQ(sizes({"1K", "1G", 4}, 2).back(), std::size_t{1} << 30);
  EXPECT_EQ(sizes({"8", "100", 3}, 2), (std::vector<std::size_t>{8, 24, 72}));
  EXPECT_EQ(sizes({"4 KiB", "4K", 2}, 2), (std::vector<std::size_t>{4096}));
  EXPECT_NE(refusal([] { (void)sizes({"8", "1K", 2}, 4); }).find("at least 16"), std::string::npos);
  EXPECT_NE(refusal([] {
              (void)sizes({"1X", "1K", 2}, 2);
            }).find("--minbytes 1X"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              (void)sizes({"2K", "1K", 2}, 2);
            }).find("--maxbytes 1K"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              (void)sizes({"1K", "1K", 1}, 2);
            }).find("--stepfactor 1"),
            std::string::npos);
}

TEST(comm_report, options_that_cannot_be_are_refused) {
  EXPECT_NE(refusal([] { require_usable({.samples = 0}, 2); }).find("--samples 0"),
            std::string::npos);
  EXPECT_NE(refusal([] { require_usable({.calls = 0}, 2); }).find("--iters 0"), std::string::npos);
  EXPECT_NE(refusal([] { require_usable({}, 1); }, execution::Exit::environment).find("two ranks"),
            std::string::npos);
  EXPECT_EQ(kinds("").size(), std::size(kKinds));
  EXPECT_EQ(kinds("exchange,all_reduce"), (std::vector{Kind::exchange, Kind::all_reduce}));
  EXPECT_NE(refusal([] { (void)kinds("all_reduce,gather"); }).find("--only gather"),
            std::string::npos);
}

TEST(comm_report, a_link_is_found_again) {
  const offload::Link truth{12e-6, 3.4e11};
  std::vector<double> bytes, time_s;
  for (double size = 1024; size <= (1 << 30); size *= 4) {
    bytes.push_back(size);
    time_s.push_back(truth.latency_s + size / truth.bytes_per_s);
  }
  const auto exact = forecast::fit_link(bytes, time_s);
  ASSERT_TRUE(exact);
  EXPECT_NEAR(exact->latency_s / truth.latency_s, 1, 1e-9);
  EXPECT_NEAR(exact->bytes_per_s / truth.bytes_per_s, 1, 1e-9);
  EXPECT_NEAR(forecast::worst_factor(*exact, bytes, time_s), 1, 1e-9);
  // Errors count as parts of a time: 1 % of the longest moves the latency by less than 1 %, where
  // errors in seconds would move it by some 90 us.
  time_s.back() *= 1.01;
  const auto one_off = forecast::fit_link(bytes, time_s);
  ASSERT_TRUE(one_off);
  EXPECT_NEAR(one_off->latency_s / truth.latency_s, 1, 0.01);
  EXPECT_GT(forecast::worst_factor(*one_off, bytes, time_s), 1 + 1e-3);
  EXPECT_EQ(forecast::worst_factor({1, 1}, std::vector{1.0, 1.0}, std::vector{4.0, 0.25}), 8);
}

TEST(comm_report, a_link_is_found_in_any_unit) {
  const std::vector<double> bytes = {1, 2, 4, 8}, time_s = {1.25, 1.5, 2, 3};
  const auto link = forecast::fit_link(bytes, time_s);
  ASSERT_TRUE(link);
  EXPECT_NEAR(link->latency_s, 1, 1e-9);
  EXPECT_NEAR(link->bytes_per_s, 4, 1e-9);
}

TEST(comm_report, no_link_where_times_say_none) {
  const std::vector<double> bytes = {1000, 2000, 4000};
  EXPECT_FALSE(forecast::fit_link(std::span(bytes).first(2), std::vector<double>{1.0, 2.0}));
  EXPECT_FALSE(forecast::fit_link(bytes, std::vector<double>{4.0, 3.0, 2.0}));  // shrinks
  EXPECT_FALSE(forecast::fit_link(bytes, std::vector<double>{1.0, 3.0, 7.0}));  // starts below zero
}

CommRow row(Kind kind, const char* library, bool in_place, double time_s) {
  return {.group = "data",
          .ranks = 4,
          .kind = kind,
          .library = library,
          .version = "1",
          .algorithm = "",
          .in_place = in_place,
          .size = 1 << 20,
          .bytes = 1 << 20,
          .count = 1 << 18,
          .calls = 1,
          .graph = false,
          .overlapping = "",
          .wrong = in_place ? 3 : 0,
          .rank_time_s = {},
          .time_s = {time_s, time_s, 100 * time_s}};
}

// 1 MiB in 10 us: 104.858 GB/s; an all-reduce of four ranks sends 2 x 3/4 of it, 157.286 GB/s.
TEST(comm_report, a_line_has_what_nccl_tests_print) {
  const std::string text = comm_table({row(Kind::all_reduce, "stowage", true, 10e-6),
                                       row(Kind::all_reduce, "nccl", false, 10e-6),
                                       row(Kind::all_reduce, "nccl", true, 20e-6)});
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  ASSERT_EQ(lines.size(), 6U) << text;
  const auto words = [](const std::string& line) {
    std::istringstream stream(line);
    return std::vector<std::string>(std::istream_iterator<std::string>(stream), {});
  };
  EXPECT_EQ(words(lines[4]),
            (std::vector<std::string>{"#", "stowage", "1048576", "262144", "float", "sum", "-1",
                                      "-", "-", "-", "-", "10.00", "104.858", "157.286", "3"}));
  EXPECT_EQ(words(lines[5]), (std::vector<std::string>{"#", "nccl", "1048576", "262144", "float",
                                                       "sum", "-1", "10.00", "104.858", "157.286",
                                                       "0", "20.00", "52.429", "78.643", "3"}));
  for (std::size_t i = 2; i < lines.size(); ++i) EXPECT_LE(lines[i].size(), lines[5].size());
}

}  // namespace
}  // namespace stowage::drivers
