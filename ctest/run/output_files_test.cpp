#include "run/command/output_files.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ctest/results/scratch_folder.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"

namespace stowage::run {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFirstStep = 74;

ResultPaths paths_of(const fs::path& result, std::int64_t first_step) {
  const std::string output[] = {"run.output=" + result.string()};
  const auto deck = inputs::Deck::parse("model.pattern = \"M-\"\ndata.source = \"synthetic\"\n",
                                        "named.toml", output);
  return result_paths(deck, {}, first_step);
}

void write_set(const fs::path& path, results::Outcome outcome) {
  auto file = results::h5::File::create(path);
  file.set_attribute("schema", std::string(results::kResultSchema));
  file.set_attribute("verdict", std::string(results::name(outcome)));
}

// The set of a name is that of the finished run: who opens it must not find where it was stopped.
TEST(output_files, a_continuation_takes_the_name_of_a_stopped_run_only) {
  const results::test::ScratchFolder scratch;
  const fs::path folder = scratch / "runs";
  fs::create_directories(folder);
  const fs::path name = folder / "run.h5", beside = folder / "run.from_74.h5";
  EXPECT_EQ(paths_of(name, kFirstStep).result, name);  // which is free
  write_set(name, results::Outcome::stopped);
  EXPECT_EQ(paths_of(name, kFirstStep).result, name);
  EXPECT_EQ(paths_of(name, kFirstStep).log, folder / "run.jsonl");
  for (const auto finished :
       {results::Outcome::valid, results::Outcome::invalid, results::Outcome::unfinished}) {
    write_set(name, finished);
    EXPECT_EQ(paths_of(name, kFirstStep).result, beside) << results::name(finished);
    EXPECT_EQ(paths_of(name, kFirstStep).log, folder / "run.from_74.jsonl");
    EXPECT_EQ(paths_of(name, 0).result, name);  // a run from the start: the older set is kept
  }
  std::ofstream(name) << "no file of ours";
  EXPECT_EQ(paths_of(name, kFirstStep).result, beside);
}

}  // namespace
}  // namespace stowage::run
