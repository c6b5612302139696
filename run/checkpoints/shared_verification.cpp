#include "run/checkpoints/shared_verification.hpp"

#include <fmt/core.h>

#include <cstring>
#include <exception>
#include <vector>

#include "execution/error.hpp"
#include "results/checkpoint.hpp"
#include "results/file_threads.hpp"

namespace stowage::run {
namespace {

using results::Checkpoint;
using Sums = results::TensorDigest::Sums;

constexpr char kGood = '+', kBad = '-';

/// What a rank has found: its sums, or why there are none.
std::string finding(const std::filesystem::path& path, int rank, int ranks, int threads) {
  try {
    const std::vector<Sums> sums = Checkpoint(path).sums(rank, ranks, threads);
    std::string text(1, kGood);
    text.append(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(Sums));
    return text;
  } catch (const execution::Error& error) {
    return kBad + std::string(error.what());
  }
}

/// Adds the sums of a finding. @throws what is wrong
void add(const std::string& finding, int rank, std::vector<Sums>& sums) {
  if (finding.front() == kBad)
    execution::throw_usage("{}{}", rank == 0 ? "" : fmt::format("rank {}: ", rank),
                           finding.substr(1));
  std::vector<Sums> found((finding.size() - 1) / sizeof(Sums));
  std::memcpy(found.data(), finding.data() + 1, found.size() * sizeof(Sums));
  if (rank == 0) sums.resize(found.size());
  if (found.size() != sums.size())
    execution::throw_usage("rank {} finds {} tensors in the checkpoint, rank 0 {}", rank,
                           found.size(), sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i)
    for (std::size_t half = 0; half < sums[i].size(); ++half) sums[i][half] += found[i][half];
}

}  // namespace

SharedVerification::SharedVerification(const parallel::Communicator& world)
    : world_(world), threads_(results::file_threads(parallel::cores_of_rank(world))) {
  if (world_.rank() == 0) return;
  for (std::string path = world_.broadcast({}); !path.empty(); path = world_.broadcast({}))
    (void)world_.gather(finding(path, world_.rank(), world_.size(), threads_));
}

SharedVerification::~SharedVerification() {
  if (world_.rank() == 0 && std::uncaught_exceptions() == 0) (void)world_.broadcast({});
}

void SharedVerification::verify(const std::filesystem::path& path) const {
  (void)world_.broadcast(path.string());
  const std::vector<std::string> findings =
      world_.gather(finding(path, world_.rank(), world_.size(), threads_));
  std::vector<Sums> sums;
  for (int rank = 0; rank < world_.size(); ++rank) add(findings[rank], rank, sums);
  Checkpoint(path).require_sums(sums);
}

}  // namespace stowage::run
