#include "results/environment.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <sstream>

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

TEST(environment, the_list_has_names_of_each_of_its_rows) {
  std::istringstream names(
      "CUDA_CACHE_DISABLE CUDA_HOME CUDA_VERSION NCCL_BUFFSIZE NCCL_CTA_POLICY "
      "NCCL_DEBUG_SUBSYS NCCL_IB_DISABLE NCCL_IB_HCA NCCL_IB_TC NCCL_LAUNCH_MODE "
      "NCCL_MAX_CTAS NCCL_MIN_CTAS NCCL_NET NCCL_NTHREADS NCCL_NVLS_ENABLE "
      "NCCL_P2P_LEVEL NCCL_PROTO NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME NCCL_TOPO_FILE "
      "NCCL_WIN_STRIDE OMP_DYNAMIC OMP_WAIT_POLICY OMPI_COMM_WORLD_RANK OMPI_MCA_coll "
      "OMPI_MCA_io_x OMPI_MCA_op_x OMPI_MCA_pml_x OMPI_MCA_shmem_x PMIX_RANK "
      "SLURM_CLUSTER_NAME SLURM_GPUS SLURM_HINT SLURM_JOBID SLURM_LOCALID SLURM_NETWORK "
      "SLURM_NTASKS_PER_NODE SLURM_PROCID SLURM_STEP_ID SLURM_THREADS_PER_CORE "
      "STOWAGE_SEED UCX_LOG_LEVEL UCX_MEMTYPE_CACHE UCX_TCP_x UCX_ZCOPY_THRESH");
  for (std::string name; names >> name;) EXPECT_TRUE(is_allowed_variable(name)) << name;
  std::istringstream refused(
      "ADDR AUTH CERT COMMENT CRED JWT KEY PASS PRIV PSK PWD SECRET TOK URI");
  for (std::string part; refused >> part;)
    EXPECT_FALSE(is_allowed_variable("UCX_IB_" + part)) << part;
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
