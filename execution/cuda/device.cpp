#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "execution/cuda_backend.hpp"
#include "execution/cuda_check.hpp"
#include "execution/error.hpp"

namespace stowage::execution {
namespace {

/// 13000 as "13.0".
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
  }
  return text;
}

/// GPUs that this process sees, or 0.
int visible_devices() {
  int driver = 0, runtime = 0, count = 0;
  STOWAGE_CUDA(cudaRuntimeGetVersion(&runtime));
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess) return count;
  (void)cudaGetLastError();
  if (code == cudaErrorNoDevice) return 0;
  if (code == cudaErrorInsufficientDriver && driver == 0)
    throw_environment("no GPU: no NVIDIA driver is loaded on this machine");
  if (code == cudaErrorInsufficientDriver)
    throw_environment("the NVIDIA driver serves CUDA {}, this program needs {}",
                      version_text(driver), version_text(runtime));
  throw_cuda_failed("cudaGetDeviceCount(&count)", code, std::source_location::current());
}

}  // namespace

int cuda_device_count() {
  const int count = visible_devices();
  if (count == 0) throw_environment("no GPU: the NVIDIA driver shows none to this process");
  return count;
}

CudaDevice open_cuda_device(int device) {
  CudaDevice found;
  STOWAGE_CUDA(cudaRuntimeGetVersion(&found.runtime));
  if (cudaDriverGetVersion(&found.driver) != cudaSuccess) found.driver = 0;
  const int count = cuda_device_count();
  if (device < 0 || device >= count)
    throw_environment("GPU {} was asked for, this process sees {} ({} to {})", device, count, 0,
                      count - 1);
  STOWAGE_CUDA(cudaSetDevice(device));
  cudaDeviceProp properties;
  STOWAGE_CUDA(cudaGetDeviceProperties(&properties, device));
  STOWAGE_CUDA(cudaMemGetInfo(&found.free_bytes, &found.memory_bytes));
  found.name = properties.name;
  found.uuid = uuid_text(properties.uuid);
  found.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                          properties.pciDeviceID);
  found.capability = 10 * properties.major + properties.minor;
  found.multiprocessors = properties.multiProcessorCount;
  found.ecc = properties.ECCEnabled != 0;
  return found;
}

PeerAccess peer_access(int device, const std::string& pci) {
  int other = 0, can = 0;
  if (cudaDeviceGetByPCIBusId(&other, pci.c_str()) != cudaSuccess) {
    (void)cudaGetLastError();
    return PeerAccess::hidden;
  }
  STOWAGE_CUDA(cudaDeviceCanAccessPeer(&can, device, other));
  return can ? PeerAccess::yes : PeerAccess::no;
}

}  // namespace stowage::execution
