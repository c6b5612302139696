#include "parallel/job/launcher.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "ctest/support/in_child.hpp"
#include "parallel/job/standard_streams.hpp"

namespace stowage::parallel {
namespace {

constexpr const char* kIsolated = "OMPI_MCA_ess_singleton_isolated";
constexpr const char* kSettings[] = {kIsolated, "OMPI_MCA_orte_create_session_dirs", "OMPI_MCA_pml",
                                     "OMPI_MCA_btl"};
constexpr const char* kLaunchers[] = {
    "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMI_RANK",   "PMI_FD",
    "PMI_CONTROL_PORT",     "PALS_RANKID",    "ALPS_APP_PE"};

/// An environment without a launcher; the cases change their own process alone.
class Launcher : public testing::Test {
 protected:
  Launcher() {
    for (const char* name : kSettings) ::unsetenv(name);
    for (const char* name : kLaunchers) ::unsetenv(name);
  }
};

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "not set" : value;
}

TEST_F(Launcher, no_daemon_and_no_network_without_one) {
  EXPECT_FALSE(started_by_launcher());
  start_alone();
  EXPECT_EQ(setting(kIsolated), "1");
  EXPECT_EQ(setting("OMPI_MCA_orte_create_session_dirs"), "0");
  EXPECT_EQ(setting("OMPI_MCA_pml"), "ob1");
  EXPECT_EQ(setting("OMPI_MCA_btl"), "self");
}

TEST_F(Launcher, a_launched_process_is_left_alone) {
  for (const char* name : kLaunchers) {
    ::setenv(name, "0", 1);
    EXPECT_TRUE(started_by_launcher()) << name;
    start_alone();
    for (const char* one : kSettings) EXPECT_EQ(setting(one), "not set") << name;
    ::unsetenv(name);
  }
}

TEST_F(Launcher, several_tasks_of_slurm_are_left_alone) {
  ::setenv("SLURM_STEP_NUM_TASKS", "8", 1);
  EXPECT_TRUE(started_by_launcher());
  ::setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_FALSE(started_by_launcher());
  ::unsetenv("SLURM_STEP_NUM_TASKS");
}

TEST_F(Launcher, a_batch_script_of_slurm_is_no_launcher) {
  ::setenv("SLURM_JOB_ID", "7", 1);
  ::setenv("SLURM_PROCID", "0", 1);
  EXPECT_FALSE(started_by_launcher());
  ::unsetenv("SLURM_JOB_ID");
  ::unsetenv("SLURM_PROCID");
}

TEST_F(Launcher, a_users_setting_wins) {
  for (const char* name : kSettings) ::setenv(name, "0", 1);
  start_alone();
  for (const char* name : kSettings) EXPECT_EQ(setting(name), "0");
}

TEST(standard_streams, closed_ones_are_given_to_no_file) {
  const int code = ctest::in_child([] {
    for (const int stream : {0, 1, 2}) ::close(stream);
    occupy_closed_streams();
    char byte = 0;
    if (::open("/dev/zero", O_RDWR) <= 2) return 1;
    if (::read(0, &byte, 1) != -1) return 2;
    return ::write(1, &byte, 1) == -1 && ::write(2, &byte, 1) == -1 ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
}

TEST(standard_streams, open_ones_stay) {
  const int code = ctest::in_child([] {
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    ::dup2(ends[1], 1);
    ::close(2);
    occupy_closed_streams();
    char byte = 'a';
    if (::write(1, &byte, 1) != 1) return 2;
    return ::read(ends[0], &byte, 1) == 1 && ::write(2, &byte, 1) == -1 ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace stowage::parallel
