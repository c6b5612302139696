#include "results/environment.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>

#include "planted_secrets.hpp"
#include "sample_result.hpp"
#include "scratch_folder.hpp"

namespace stowage::results {
namespace {

TEST(environment, is_an_allow_list_of_names) {
  for (const char* name :
       {"OMP_NUM_THREADS", "omp_num_threads", "NCCL_ALGO", "CUDA_VISIBLE_DEVICES", "UCX_TLS",
        "UCX_RC_TIMEOUT", "OMPI_MCA_pml", "OMPI_MCA_btl_tcp_sndbuf", "OMPI_COMM_WORLD_SIZE",
        "SLURM_NTASKS", "SLURM_JOB_ID", "STOWAGE_PEER_DIR", "NCCL_IB_ADDR_FAMILY"})
    EXPECT_TRUE(is_allowed_variable(name)) << name;
  for (const char* name :
       {"PATH", "HOME", "OMP_", "OMP_NUM", "OMP_NUM_THREADS_", "OMP_NUM_THREADS PLACES", "NCCL_X",
        "OMPI_MCA_", "OMPI_MCA_orte_hnp_uri", "UCX_IB_*", "UCX_*", "UCX_RC", "", "OMP_ ",
        "XOMP_PLACES", "SLURM_JOB", "PMIX_HOSTNAME"})
    EXPECT_FALSE(is_allowed_variable(name)) << name;
}

TEST(environment, no_value_with_a_password_or_an_address_is_stored) {
  for (const char* value : {"user:secret@host", "a b user:p@", "tcp://192.0.2.2:55113", ":@",
                            "0.0;tcp6://[::1]:1", "a@b,c:d@e"})
    EXPECT_TRUE(holds_address(value)) << value;
  for (const char* value : {"", "@", "user@host", "a:b", "a:b/c@d", "a:b c@d", "mlx5_0:1,mlx5_1:1"})
    EXPECT_FALSE(holds_address(value)) << value;
}

TEST(environment, is_sorted_and_without_folders) {
  setenv("OMP_PLACES", "/somewhere/places", 1);
  setenv("NCCL_TOPO_FILE", "/a/b:/c/d", 1);
  const Fields found = allowed_environment();
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, &Field::name));
  std::map<std::string, Value> values;
  for (const Field& field : found) values.insert({field.name, field.value});
  EXPECT_EQ(values.at("OMP_PLACES"), Value(std::string("places")));
  EXPECT_EQ(values.at("NCCL_TOPO_FILE"), Value(std::string("b:d")));
}

TEST(environment, secrets_are_not_in_a_result_set) {
  test::plant_secrets();
  const test::ScratchFolder folder;
  test::write_sample(folder / "a.h5", {});
  const std::string bytes = test::read_all(folder / "a.h5");
  EXPECT_NE(bytes.find("OMP_SCHEDULE"), std::string::npos) << "an allowed variable is there";
  EXPECT_EQ(bytes.find(test::kSecret), std::string::npos);
}

}  // namespace
}  // namespace stowage::results
