#include "results/result_set.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "results/h5.hpp"
#include "results/links.hpp"
#include "sample_result.hpp"
#include "scratch_folder.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;
using execution::Exit;
using test::expect_error;
using test::good_verdict;
using test::sample_header;
using test::ScratchFolder;
using test::write_sample;

double scalar(const h5::File& file, const std::string& path) {
  double value = -1;
  file.dataset(path).read(&value);
  return value;
}

TEST(result_set, holds_what_was_added) {
  const ScratchFolder folder;
  const fs::path path = folder / "out/run.h5";
  write_sample(path, {.steps = 60});
  EXPECT_FALSE(fs::exists(path.string() + ".part"));
  const h5::File file = h5::File::open(path, kResultSchema);
  EXPECT_EQ(file.text_attribute("verdict"), "VALID");
  EXPECT_EQ(file.group("config").attribute("train.lr"), Value(1e-3));
  EXPECT_EQ(file.group("config").attribute("train.deterministic"), Value(true));
  EXPECT_EQ(scalar(file, "metrics/train/val_loss"), 2.1);
  EXPECT_EQ(file.dataset("metrics/train/val_loss").text_attribute("units"), "nat");
  EXPECT_EQ(file.dataset("series/train/loss").shape(), h5::Shape{60});
  EXPECT_EQ(file.dataset("series/train/val_loss").shape(), h5::Shape{3});
  EXPECT_EQ(file.dataset("series/ranks/step_time").shape(), (h5::Shape{60, 2}));
  EXPECT_EQ(file.dataset("samples/train/step_time").shape(), h5::Shape{60});
  EXPECT_EQ(file.group("validation/val_loss").text_attribute("result"), "PASSED");
  std::vector<double> loss(60, -1);
  file.dataset("series/train/loss").read(loss.data());
  EXPECT_DOUBLE_EQ(loss[19], 2 + 3 * std::exp(-1.0));
  std::vector<double> per_rank(120, -1);
  file.dataset("series/ranks/step_time").read(per_rank.data());
  EXPECT_DOUBLE_EQ(per_rank[2], 2 * per_rank[3]);
  EXPECT_FALSE(file.group("provenance/run").text_attribute("stop").empty());
}

TEST(result_set, keeps_how_ranks_are_linked_and_what_is_wrong_with_it) {
  const ScratchFolder folder;
  ResultHeader header = test::sample_header();
  header.ranks[0].gpu_links = "1 NV18 by switch";
  header.ranks[1].gpu_unreached = "0";
  header.ranks[1].nics = "mlx5_0 0000:3c:00.0 fabric 0 PIX";
  {
    ResultSet set(folder / "run.h5", header);
    Verdict verdict;
    verdict.add(equal("a", 0, 0, "nothing"));
    set.finish(verdict);
  }
  const h5::File file = h5::File::open(folder / "run.h5", kResultSchema);
  using Words = std::vector<std::string>;
  const std::string system = "provenance/system/";
  for (const char* lines : {"links", "warnings"}) EXPECT_TRUE(file.exists(system + lines)) << lines;
  const std::string bytes = test::read_all(folder / "run.h5");
  for (const std::string& line : {link_lines(header.ranks).at(2), warnings(header.ranks).at(0)})
    EXPECT_NE(bytes.find(line), std::string::npos) << line;
  EXPECT_EQ(file.read_column(system + "ranks", "gpu_links"), (Words{"1 NV18 by switch", ""}));
  EXPECT_EQ(file.read_column(system + "ranks", "gpu_unreached"), (Words{"", "0"}));
  EXPECT_EQ(file.read_column(system + "ranks", "nics"),
            (Words{"", "mlx5_0 0000:3c:00.0 fabric 0 PIX"}));
}

TEST(result_set, gives_the_deck_back) {
  const ScratchFolder folder;
  write_sample(folder / "run.h5");
  EXPECT_EQ(read_config(folder / "run.h5"), sample_header().deck_resolved);
}

TEST(result_set, deck_of_a_file_that_is_not_ours_is_refused) {
  const ScratchFolder folder;
  test::write_all(folder / "deck.toml", "[train]\n");
  h5::File::create(folder / "other.h5").close();
  write_sample(folder / "cut.h5");
  test::truncate_to_half(folder / "cut.h5");
  for (const auto& [name, word] : {std::pair{"deck.toml", "not an HDF5 file"},
                                   {"other.h5", "not a stowage-result file"},
                                   {"cut.h5", "truncated"},
                                   {"none.h5", "no such file"}})
    expect_error(Exit::usage, {name, word}, [&, n = name] { read_config(folder / n); });
}

TEST(result_set, unwritable_output_is_told_before_the_run) {
  const ScratchFolder folder;
  test::write_all(folder / "file", "");
  expect_error(Exit::usage, {"result set", "file/run.h5"},
               [&] { ResultSet(folder / "file/run.h5", sample_header()); });
}

TEST(result_set, a_run_that_throws_leaves_only_a_part) {
  const ScratchFolder folder;
  try {
    ResultSet set(folder / "run.h5", sample_header());
    test::fill(set, {});
    throw std::runtime_error("in the middle of the run");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(fs::exists(folder / "run.h5"));
  const h5::File part = h5::File::open(folder / "run.h5.part", kResultSchema);
  EXPECT_EQ(part.text_attribute("verdict"), "UNFINISHED");
  EXPECT_EQ(part.dataset("series/train/loss").shape(), h5::Shape{60});
}

TEST(result_set, a_run_without_a_step_leaves_nothing) {
  const ScratchFolder folder;
  { ResultSet set(folder / "run.h5", sample_header()); }
  EXPECT_FALSE(fs::exists(folder / "run.h5"));
  EXPECT_FALSE(fs::exists(folder / "run.h5.part"));
}

TEST(result_set, a_killed_run_leaves_the_older_result) {
  const ScratchFolder folder;
  write_sample(folder / "run.h5", {.steps = 3}, good_verdict());
  const std::string older = test::read_all(folder / "run.h5");
  const pid_t child = fork();
  if (child == 0) {
    ResultSet set(folder / "run.h5", sample_header());
    test::fill(set, {});
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(test::read_all(folder / "run.h5"), older);
}

TEST(result_set, the_series_of_a_run_that_failed_are_kept_from_the_next) {
  const ScratchFolder folder;
  {
    ResultSet set(folder / "run.h5", sample_header());
    test::fill(set, {});
  }
  ASSERT_TRUE(fs::exists(folder / "run.h5.part"));
  write_sample(folder / "run.h5", {.steps = 3}, good_verdict());
  EXPECT_FALSE(fs::exists(folder / "run.h5.part"));
  const h5::File file = h5::File::open(folder / "run.h5.older_1.part", kResultSchema);
  EXPECT_EQ(file.text_attribute("verdict"), "UNFINISHED");
}

TEST(result_set, verdicts_other_than_valid_are_stored) {
  const ScratchFolder folder;
  Verdict stopped = good_verdict();
  stopped.stop();
  stopped.remark("SIGTERM at step 30");
  write_sample(folder / "stopped.h5", {.steps = 30}, stopped);
  const h5::File file = h5::File::open(folder / "stopped.h5", kResultSchema);
  EXPECT_EQ(file.text_attribute("verdict"), "STOPPED");
  EXPECT_EQ(file.text_attribute("remark"), "SIGTERM at step 30");
}

TEST(result_set, series_refuse_wrong_widths_and_steps_that_go_back) {
  const ScratchFolder folder;
  ResultSet set(folder / "run.h5", sample_header());
  Series& series = set.series("a", "step", {{"x", "1", "x"}, {"y", "1", "y", {2}}});
  series.append(5, {1, 2, 3});
  expect_error(Exit::runtime, {"takes 3 numbers"}, [&] { series.append(6, {1, 2}); });
  expect_error(Exit::runtime, {"step 5 follows 5"}, [&] { series.append(5, {1, 2, 3}); });
  EXPECT_EQ(series.column("x"), std::vector<double>{1});
  expect_error(Exit::runtime, {"no scalar column y"}, [&] { series.column("y"); });
}

TEST(result_set, long_series_are_compressed_and_read_back) {
  const ScratchFolder folder;
  write_sample(folder / "long.h5", {.steps = 20000});
  const h5::File file = h5::File::open(folder / "long.h5", kResultSchema);
  std::vector<double> memory(20000, -1);
  file.dataset("series/train/mem_device").read(memory.data());
  for (const double value : memory) ASSERT_EQ(value, 1e9);
  EXPECT_LT(fs::file_size(folder / "long.h5"), 20000U * 8 * 7) << "6 columns and 3 scales unpacked";
}

TEST(result_set, a_tag_added_twice_keeps_the_later_value) {
  const ScratchFolder folder;
  ResultSet set(folder / "run.h5", sample_header());
  set.add(metric("train/val_loss", 3));
  set.add(metric("train/val_loss", 2));
  ASSERT_EQ(set.metrics().size(), 1U);
  set.finish(good_verdict());
  EXPECT_EQ(scalar(h5::File::open(folder / "run.h5", kResultSchema), "metrics/train/val_loss"), 2);
}

}  // namespace
}  // namespace stowage::results
