#include "execution/cuda/numa.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

namespace stowage::execution::cuda {
namespace {

constexpr int kMostNodes = 64;  ///< bits of the mask that the kernel is given

/// Whether this thread's pages go where the system likes: a launcher's choice is left alone.
bool policy_is_default() {
  int mode = MPOL_DEFAULT;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0 && mode == MPOL_DEFAULT;
}

}  // namespace

int numa_node_of_gpu() {
  int device = 0, domain = 0, bus = 0, slot = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&domain, cudaDevAttrPciDomainId, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bus, cudaDevAttrPciBusId, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&slot, cudaDevAttrPciDeviceId, device) != cudaSuccess) {
    (void)cudaGetLastError();
    return -1;
  }
  std::ifstream file(
      fmt::format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.0/numa_node", domain, bus, slot));
  int node = -1;
  return file >> node ? node : -1;
}

void prefer_near_gpu(void* address, std::size_t bytes) {
  const int node = numa_node_of_gpu();
  if (node < 0 || node >= kMostNodes || !policy_is_default()) return;
  const unsigned long nodes = 1UL << node;
  (void)syscall(SYS_mbind, address, bytes, MPOL_PREFERRED, &nodes, kMostNodes + 1UL, 0U);
}

}  // namespace stowage::execution::cuda
