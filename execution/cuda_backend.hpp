#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "execution/backend.hpp"

namespace stowage::execution {

/// Options of the cuda backend.
struct CudaOptions {
  int device = 0;  ///< index among the GPUs that the process sees (CUDA_VISIBLE_DEVICES)
};

/// What the CUDA runtime says of one GPU.
struct CudaDevice {
  std::string name;    ///< "NVIDIA H200"
  std::string uuid;    ///< "GPU-9f31…", as nvidia-smi writes it
  std::string pci;     ///< "0000:3b:00.0"
  int driver = 0;      ///< CUDA version that the driver serves, as 13000 for 13.0
  int runtime = 0;     ///< of the runtime library that is loaded
  int capability = 0;  ///< compute capability, as 90 for 9.0
  int multiprocessors = 0;
  bool ecc = false;
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;  ///< now
};

/// GPUs that this process sees, at least one.
/// @throws Error (exit 3) if there is none, no driver, or a driver too old for this program
int cuda_device_count();

/// Describes a GPU and makes it the current one of this thread.
/// @throws Error (exit 3) if there is no such GPU, no driver, or a driver too old for this program
CudaDevice open_cuda_device(int device);

/// Whether a GPU can read and write the memory of another one.
enum class PeerAccess { yes, no, hidden };  // hidden: this process is not shown the other one

/// What the CUDA runtime says of a GPU of this process and the one in a PCI slot of this host.
PeerAccess peer_access(int device, const std::string& pci);

/// The backend that runs on one GPU: a queue is a stream, a graph an executable CUDA graph, device
/// memory is allocated once per arena, host memory is page-locked.
///
/// Its objects may be used from any thread in which that GPU is the current one: it is in the
/// thread
/// that calls this, and becomes so in a thread that makes an arena, a queue or an event.
/// @throws Error (exit 3) as open_cuda_device
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options = {});

}  // namespace stowage::execution
