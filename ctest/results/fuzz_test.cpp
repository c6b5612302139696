// Readers of checkpoints and result sets among random damage.
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "checkpoint_support.hpp"
#include "ctest/support/mutate.hpp"
#include "ctest/support/seed.hpp"
#include "results/ceilings_reference.hpp"
#include "results/checkpoint.hpp"
#include "results/file_kind.hpp"
#include "sample_result.hpp"
#include "scratch_folder.hpp"

namespace stowage::results {
namespace {

using execution::Exit;
using test::ScratchFolder;

TEST(fuzz, checkpoints) {
  std::mt19937_64 random(ctest::seed());
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "a.h5";
  std::vector<float> weight(1000, 1.5F);
  const TensorSource sources[] = {
      test::from_memory({"weight", execution::Dtype::fp32, {10, 100}}, weight.data())};
  test::save_checkpoint(
      path, {.step = 3, .values = {{"loader.sample", std::int64_t{9}}}, .deck = "[a]"}, sources);
  const std::string whole = test::read_all(path);
  for (int round = 0; round < 2 * ctest::fuzz_rounds(); ++round) {
    const std::string bytes = ctest::mutated(whole, random);
    test::write_all(path, bytes);
    try {
      Checkpoint(path).verify();
      EXPECT_EQ(bytes, whole) << "round " << round;
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage) << error.what();
    }
  }
}

/// How a child ends that reads the deck of a result set and tells its kind: 0, 1 if it is told of
/// damage by another code than 2, or a signal.
int status_of_reading(const std::filesystem::path& path) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    (void)kind_of(path);
    int code = 0;
    try {
      (void)read_config(path);
      (void)ceilings_digest(path);
    } catch (const execution::Error& error) {
      code = error.exit() == Exit::usage ? 0 : 1;
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(fuzz, result_sets) {
  std::mt19937_64 random(ctest::seed());
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "a.h5";
  {
    ResultSet set(path, test::sample_header());
    test::fill(set, {});
    set.finish(test::good_verdict());
  }
  const std::string whole = test::read_all(path);
  for (int round = 0; round < ctest::fuzz_rounds(); ++round) {
    test::write_all(path, ctest::mutated(whole, random));
    const int status = status_of_reading(path);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "round " << round << ", status " << status;
  }
}

}  // namespace
}  // namespace stowage::results
