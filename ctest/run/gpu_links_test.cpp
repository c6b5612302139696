// Paths between the GPUs of this host. A GPU of its own for each rank is needed.
#include "run/measure/gpu_links.hpp"

#include <cuda_runtime_api.h>

#include "ctest/parallel/mpi_support.hpp"
#include "results/links.hpp"
#include "run/measure/gpu.hpp"

namespace stowage::run {
namespace {

/// This rank's GPU, as drivers describe it.
results::RankInfo described(const parallel::Communicator& host) {
  const execution::CudaDevice device = execution::open_cuda_device(host.rank());
  const GpuMonitor monitor(device.uuid);
  results::RankInfo info = results::this_rank(host.rank(), 1);
  describe(device, monitor, info);
  describe_links(host, host.rank(), monitor, info);
  return info;
}

using gpu_links = parallel::MpiTest;

TEST_F(gpu_links, every_other_gpu_of_the_host_is_judged) {
  const parallel::Communicator host = world.split_by_host();
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  if (host.max(devices < host.size() ? 1 : 0) != 0) GTEST_SKIP() << "no GPU for each rank";
  const results::RankInfo info = described(host);
  EXPECT_EQ(info.gpu_hidden, "");
  const auto links = results::links_from_text(info.gpu_links);
  ASSERT_EQ(static_cast<int>(links.size()), host.size() - 1) << info.gpu_links;
  for (const results::GpuLink& link : links) {
    EXPECT_NE(link.rank, host.rank());
    EXPECT_FALSE(link.path.starts_with("NV") && info.gpu_nvlinks == 0) << info.gpu_links;
  }
  EXPECT_EQ(info.gpu_nvlinks > 0, info.gpu_nvlink_bytes_per_s > 0);
  EXPECT_GE(info.gpu_ecc_errors, 0);
  std::vector<results::RankInfo> ranks;
  for (const std::string& text : host.gather(results::to_text(info)))
    ranks.push_back(results::rank_from_text(text));
  for (const std::string& line : results::link_lines(ranks)) fmt::print("# {}\n", line);
  for (const std::string& line : results::warnings(ranks)) fmt::print("# WARN {}\n", line);
}

TEST_F(gpu_links, a_slot_without_a_gpu_is_hidden) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  EXPECT_EQ(execution::peer_access(0, "0000:ff:1f.0"), execution::PeerAccess::hidden);
}

}  // namespace
}  // namespace stowage::run
