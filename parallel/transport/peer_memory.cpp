#include "parallel/transport/peer_memory.hpp"

#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "execution/cuda_check.hpp"
#include "execution/error.hpp"

namespace stowage::parallel {
namespace {

/// Where the allocation begins that an address lies in. The driver's call is asked for by name, so
/// that programs start without a driver.
std::byte* allocation_of(void* address) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  STOWAGE_CUDA(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000,
                                                cudaEnableDefault, &found));
  STOWAGE_ASSERT(found == cudaDriverEntryPointSuccess, "the driver has no cuMemGetAddressRange");
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const auto code = reinterpret_cast<CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr)>(entry)(
      &base, &bytes, reinterpret_cast<CUdeviceptr>(address));
  STOWAGE_ASSERT(code == CUDA_SUCCESS, "cuMemGetAddressRange failed with {}",
                 static_cast<int>(code));
  return reinterpret_cast<std::byte*>(base);
}

/// What a rank fetches from another, and how many ranks on that one is.
struct Pull {
  const Transfer* to;
  std::byte* from;
  int distance;
};

std::span<const std::byte> bytes_of(const std::vector<std::uint64_t>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

struct PeerMemory::Mapped {
  cudaIpcMemHandle_t arena, flags;
  std::uint64_t offset;  ///< of the arena in its allocation
};

bool PeerMemory::reachable(const Communicator& ranks) {
  int device = 0;
  STOWAGE_CUDA(cudaGetDevice(&device));
  const bool one_host = ranks.split_by_host().size() == ranks.size();
  bool all = one_host && ranks.size() <= kMostPeers;
  std::string mine(reinterpret_cast<const char*>(&device), sizeof device), joined;
  for (const std::string& one : ranks.gather(mine)) joined += one;
  joined = ranks.broadcast(joined);
  for (int r = 0; all && r < ranks.size(); ++r) {
    int other = 0, can = 1;
    std::memcpy(&other, joined.data() + static_cast<std::size_t>(r) * sizeof other, sizeof other);
    if (r == ranks.rank()) continue;
    // Launchers that show each rank one GPU give all the same number: nothing is known of the
    // others.
    all = other != device && cudaDeviceCanAccessPeer(&can, device, other) == cudaSuccess && can;
  }
  (void)cudaGetLastError();
  return ranks.max(all ? 0 : 1) == 0;
}

PeerMemory::PeerMemory(const Communicator& ranks, std::span<std::byte> arena)
    : ranks_(ranks.duplicate()), base_(arena.data()) {
  const auto size = static_cast<std::size_t>(ranks_.size());
  void* words = nullptr;
  STOWAGE_CUDA(cudaMalloc(&words, (size + 1) * sizeof(std::uint64_t)));
  flags_ = static_cast<std::uint64_t*>(words);
  STOWAGE_CUDA(cudaMemset(flags_, 0, (size + 1) * sizeof(std::uint64_t)));
  STOWAGE_CUDA(cudaDeviceSynchronize());
  std::byte* const allocation = allocation_of(base_);
  Mapped mine{};
  STOWAGE_CUDA(cudaIpcGetMemHandle(&mine.arena, allocation));
  STOWAGE_CUDA(cudaIpcGetMemHandle(&mine.flags, allocation_of(flags_)));
  mine.offset = static_cast<std::uint64_t>(base_ - allocation);
  const auto flags_offset =
      static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(flags_) - allocation_of(flags_));
  std::string all;
  std::string text(reinterpret_cast<const char*>(&mine), sizeof mine);
  text.append(reinterpret_cast<const char*>(&flags_offset), sizeof flags_offset);
  for (const std::string& one : ranks_.gather(text)) all += one;
  all = ranks_.broadcast(all);
  meeting_.here = flags_;
  meeting_.count = flags_ + size;
  meeting_.rank = ranks_.rank();
  meeting_.ranks = ranks_.size();
  const auto open = [&](const cudaIpcMemHandle_t& handle) {
    void* mapped = nullptr;
    STOWAGE_CUDA(cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess));
    opened_.push_back(mapped);
    return static_cast<std::byte*>(mapped);
  };
  for (int r = 0; r < ranks_.size(); ++r) {
    if (r == ranks_.rank()) {
      bases_.push_back(base_);
      continue;
    }
    Mapped other;
    std::uint64_t offset = 0;
    const char* const at = all.data() + static_cast<std::size_t>(r) * text.size();
    std::memcpy(&other, at, sizeof other);
    std::memcpy(&offset, at + sizeof other, sizeof offset);
    bases_.push_back(open(other.arena) + other.offset);
    meeting_.there[r] = reinterpret_cast<std::uint64_t*>(open(other.flags) + offset);
  }
  ranks_.barrier();
}

PeerMemory::~PeerMemory() {
  for (void* const mapped : opened_) (void)cudaIpcCloseMemHandle(mapped);
  (void)cudaFree(flags_);
}

const std::vector<std::byte*>& PeerMemory::sources(const PeerCall& call,
                                                   std::span<const Transfer> transfers) {
  const auto [known, first] = told_.try_emplace(call);
  Told& told = known->second;
  std::vector<const void*> sends;
  for (const Transfer& t : transfers)
    if (t.sends) sends.push_back(t.data);
  if (first) told.sent = sends;
  STOWAGE_ASSERT(told.sent == sends,
                 "collective {}, issue {}, move {}: its bytes lie elsewhere now", call.collective,
                 call.issue, call.move);
  if (!first) return told.sources;
  // The k-th receive from a peer meets its k-th send to this rank.
  const auto size = static_cast<std::size_t>(ranks_.size());
  std::vector<std::vector<std::uint64_t>> sent(size), received(size);
  for (const Transfer& t : transfers) {
    const auto peer = static_cast<std::size_t>(t.peer);
    if (t.sends)
      sent[peer].push_back(static_cast<std::uint64_t>(static_cast<std::byte*>(t.data) - base_));
    else
      received[peer].push_back(0);
  }
  std::vector<MPI_Request> requests;
  for (std::size_t peer = 0; peer < size; ++peer) {
    const auto note = [&](auto&& start, std::vector<std::uint64_t>& values) {
      if (values.empty()) return;
      MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
      STOWAGE_MPI(start(values.data(), narrow<int>(bytes_of(values).size()), MPI_BYTE,
                        static_cast<int>(peer), 0, ranks_.handle(), &request));
    };
    note(MPI_Isend, sent[peer]);
    note(MPI_Irecv, received[peer]);
  }
  for (MPI_Request& request : requests) wait(request);
  std::vector<std::size_t> next(size, 0);
  for (const Transfer& t : transfers)
    if (const auto peer = static_cast<std::size_t>(t.peer); !t.sends)
      told.sources.push_back(bases_[peer] + received[peer][next[peer]++]);
  return told.sources;
}

void PeerMemory::move(const PeerCall& call, std::span<const Transfer> transfers,
                      const ProgressNote& note, cudaStream_t stream) {
  const std::vector<std::byte*>& from = sources(call, transfers);
  meet(note, stream);
  std::vector<Pull> pulls;
  for (const Transfer& t : transfers)
    if (!t.sends) pulls.push_back({&t, from[pulls.size()], distance(t.peer)});
  std::ranges::stable_sort(pulls, {}, &Pull::distance);
  for (const Pull& pull : pulls)
    if (pull.to->bytes > 0)
      STOWAGE_CUDA(
          cudaMemcpyAsync(pull.to->data, pull.from, pull.to->bytes, cudaMemcpyDefault, stream));
}

int PeerMemory::distance(int peer) const {
  return (peer - ranks_.rank() + ranks_.size()) % ranks_.size();
}

void PeerMemory::meet(const ProgressNote& note, cudaStream_t stream) const {
  STOWAGE_CUDA(launch_peer_barrier(meeting_, note, stream));
}

}  // namespace stowage::parallel
