#include "run/machine/machine.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>

#include "execution/error.hpp"
#include "execution/host_threads.hpp"
#include "execution/printable.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/run_section.hpp"
#include "kernels/blas_memory.hpp"
#include "layers/recording/precision.hpp"
#include "parallel/job/waits.hpp"
#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"
#include "run/machine/gpu_agreement.hpp"
#include "run/machine/host_memory.hpp"

#if STOWAGE_HAVE_CUDA
#include "execution/cuda_backend.hpp"
#include "kernels/linear/dense_product.hpp"
#include "kernels/machine.hpp"
#include "parallel/transport/nccl.hpp"
#include "run/measure/gpu.hpp"
#include "run/measure/gpu_links.hpp"
#endif

namespace stowage::run {
namespace {

using execution::Lifetime;
using inputs::Deck;
using parallel::Communicator;

/// Collective.
void warn_of_threads_left_out(const Communicator& world) {
  const std::int64_t offered = world.max(execution::offered_host_threads());
  if (world.rank() != 0 || offered <= execution::kMostHostThreads) return;
  execution::print_remark(fmt::format(
      "# WARN a rank computes with {} of {} threads, the most that it can (OMP_NUM_THREADS)",
      execution::kMostHostThreads, offered));
}

std::unique_ptr<execution::Backend> host_backend(const Deck& deck, const Communicator& world) {
  warn_of_threads_left_out(world);
  const auto seed =
      static_cast<std::uint64_t>(inputs::read(deck, &forecast::ExecutionConfig::delay_seed));
  auto backend = execution::make_host_backend(
      {.delay_seed = seed == 0 ? 0 : seed + static_cast<std::uint64_t>(world.rank())});
  kernels::take_blas_memory(execution::host_threads());
  return backend;
}

/// Device memory of the host backend is that of the host.
std::size_t left_on_host(const forecast::TrainerPlan& plan) {
  const std::size_t there = host_memory_bytes();
  const std::size_t taken = plan.layout().bytes() + plan.transient_bytes() + plan.host_bytes();
  return there - std::min(taken, there);
}

parallel::MakeTransport host_transports(const Deck& deck) {
  return parallel::host_transports(inputs::read(deck, &forecast::ParallelConfig::patience_s));
}

#if STOWAGE_HAVE_CUDA
/// What cuBLASLt takes beside a plan.
std::size_t product_bytes(const forecast::TrainerPlan& plan) {
  return plan.compute_queues().size() *
         (kernels::kProductWorkspaceBytes + kernels::kProductScratchBytes);
}

/// GPUs of their own that the ranks of a host have: distinct names, empty ones left out.
std::int64_t count_gpus(const Communicator& host, const std::string& uuid) {
  const std::vector<std::string> all = host.gather(uuid);
  std::set<std::string> distinct(all.begin(), all.end());
  distinct.erase("");
  return host.max(static_cast<std::int64_t>(distinct.size()));
}

/// Collective. Whether all ranks compute on GPUs. @throws Error (exit 3) if they cannot agree
bool agreed(const Communicator& world, const GpuFinding& mine, bool required) {
  GpuAgreement agreement;
  const std::vector<std::string> texts = world.gather(to_text(mine));
  if (world.rank() == 0) {
    std::vector<GpuFinding> by_rank;
    for (const std::string& text : texts) by_rank.push_back(finding_from_text(text));
    agreement = agree_on_gpus(by_rank, required);
    if (!agreement.warning.empty())
      execution::print_remark(fmt::format("# WARN {}", agreement.warning));
  }
  const std::string refusal = world.broadcast(agreement.refusal);
  if (!refusal.empty()) execution::throw_environment("{}", refusal);
  return world.max(agreement.on_gpus ? 1 : 0) != 0;
}
#endif

}  // namespace

Machine::Machine(const Deck& deck, const Communicator& world)
    : rank_info_(results::this_rank(world.rank(), execution::host_threads())) {
  parallel::set_wait_patience(
      std::chrono::duration<double>(inputs::read(deck, &forecast::ParallelConfig::patience_s)));
  using Backend = forecast::ExecutionConfig::Backend;
  const Backend wanted = inputs::read(deck, &forecast::ExecutionConfig::backend);
  const std::string_view obstacle = forecast::host_only(deck);
  if (wanted == Backend::cuda && !obstacle.empty())
    execution::throw_usage("{}: the cuda backend cannot do that; set {} = \"host\"",
                           deck.cite(obstacle), inputs::key(&forecast::ExecutionConfig::backend));
  if (wanted != Backend::host && obstacle.empty()) open_gpu(world, wanted == Backend::cuda);
#if STOWAGE_HAVE_CUDA
  if (backend_) layers::require_products(deck, kernels::machine().capability);
  if (backend_)
    kernels::leave_multiprocessors(inputs::read(deck, &forecast::ParallelConfig::sm_margin));
  if (backend_ && world.size() > 1) {
    parallel::pin_nccl(forecast::nccl_options(deck));
    software_.push_back({"nccl", parallel::nccl_version()});
  }
#endif
  if (!backend_) backend_ = host_backend(deck, world);
}

parallel::RankOrder Machine::rank_order() const { return forecast::rank_order_on(has_gpu()); }

#if STOWAGE_HAVE_CUDA

void Machine::open_gpu(const Communicator& world, bool required) {
  execution::CudaDevice device;
  std::string problem;
  const Communicator host = world.split_by_host();
  try {
    device_ = host.rank() % execution::cuda_device_count();
    device = execution::open_cuda_device(device_);
  } catch (const execution::Error& error) {
    problem = error.what();
  }
  const std::int64_t gpus = count_gpus(host, device.uuid);
  if (problem.empty() && gpus < host.size())
    problem = fmt::format("{} ranks run on host {} and see {} GPUs: each rank needs one of its own",
                          host.size(), parallel::host_name(), gpus);
  if (!agreed(world, {parallel::host_name(), !device.uuid.empty(), problem}, required)) return;
  monitor_ = std::make_shared<GpuMonitor>(device.uuid);
  describe(device, *monitor_, rank_info_);
  describe_links(host, device_, *monitor_, rank_info_);
  software_.push_back({"cublas", kernels::product_library()});
  software_.push_back({"cuda_driver", fmt::format("{}", device.driver)});
  software_.push_back({"cuda_runtime", fmt::format("{}", device.runtime)});
  backend_ = execution::make_cuda_backend({device_});
}

std::vector<results::Choice> Machine::choices(const Deck& deck) const {
  std::vector<results::Choice> all;
  if (!has_gpu()) return all;
  for (const kernels::ProductRecord& product : kernels::products_used())
    all.push_back({"cublasLt", kernels::text(product.shape), product.algorithm,
                   product.from_table ? "table" : "heuristics"});
  if (collectives_bytes_ == 0) return all;
  for (const char* name : {"NCCL_ALGO", "NCCL_PROTO", "NCCL_GRAPH_REGISTER"}) {
    const char* value = std::getenv(name);
    all.push_back({"nccl", name, value != nullptr ? value : "", "environment, or else the deck"});
  }
  all.push_back(
      {"nccl", "channels", fmt::format("{}", forecast::nccl_options(deck).channels), "deck"});
  return all;
}

void Machine::prepare(execution::Queue& queue) const {
  if (has_gpu()) kernels::prepare_products(static_cast<cudaStream_t>(queue.stream()));
}

std::int64_t Machine::driver_bytes(std::int64_t ours) const {
  if (!has_gpu()) return 0;
  const execution::CudaDevice now = execution::open_cuda_device(device_);
  return static_cast<std::int64_t>(now.memory_bytes - now.free_bytes) - ours - collectives_bytes_;
}

BoardReading Machine::board() const {
  const GpuState state = monitor_->read();
  return {state.clock_hz, state.power_w, state.temperature_c};
}

double Machine::energy_j() const { return monitor_ ? monitor_->energy_j() : std::nan(""); }

parallel::Ranks Machine::connect(const Deck& deck, const Communicator& world) {
  const parallel::GridShape shape = forecast::grid_shape(deck, world.size());
  if (!has_gpu()) return parallel::connect(world, shape, host_transports(deck));
  return parallel::connect(world, shape, [&](const Communicator& ranks, const std::string& group) {
    return parallel::make_nccl_transport(*backend_, ranks, group, forecast::nccl_options(deck),
                                         &collectives_bytes_);
  });
}

std::size_t Machine::memory_left(const forecast::TrainerPlan& plan) const {
  if (!has_gpu()) return left_on_host(plan);
  constexpr std::size_t kSpare = std::size_t{2} << 30;  // for libraries
  const std::size_t free = execution::open_cuda_device(device_).free_bytes;
  const std::size_t taken = plan.layout().bytes() + plan.transient_bytes() + product_bytes(plan) +
                            plan.options().slack_bytes + kSpare;
  return free - std::min(taken, free);
}

void Machine::require_memory(const forecast::TrainerPlan& plan, std::size_t copy) const {
  if (!has_gpu()) return;
  const std::size_t free = execution::open_cuda_device(device_).free_bytes;
  const execution::PersistentLayout& layout = plan.layout();
  const std::size_t products = product_bytes(plan);
  const std::size_t needed = layout.bytes() + plan.transient_bytes() + products + copy;
  if (needed + plan.options().slack_bytes <= free) return;
  std::string of_copy;
  if (copy > 0)
    of_copy = fmt::format(
        ", copy of the state {} (checkpoint.copy = \"device\"; \"host\", \"none\" and \"auto\" do "
        "without)",
        copy);
  std::string of_sequences;
  if (const std::size_t bytes = layout.bytes(Lifetime::sequence_state); bytes > 0)
    of_sequences = fmt::format("states and caches of sequences {}, ", bytes);
  execution::throw_environment(
      "{} has {} bytes free, a rank needs {}: parameters {}, gradients {}, optimizer states {}, "
      "{}transient {}, room of cuBLASLt {}{}",
      rank_info_.gpu_name, free, needed, layout.bytes(Lifetime::parameter),
      layout.bytes(Lifetime::gradient), layout.bytes(Lifetime::optimizer_state), of_sequences,
      plan.transient_bytes(), products, of_copy);
}

#else

void Machine::open_gpu(const Communicator&, bool required) {
  if (required)
    execution::throw_environment(
        "execution.backend = \"cuda\": this program was built without CUDA");
}

std::vector<results::Choice> Machine::choices(const Deck&) const { return {}; }
void Machine::prepare(execution::Queue&) const {}

std::int64_t Machine::driver_bytes(std::int64_t) const { return 0; }
BoardReading Machine::board() const { return {std::nan(""), std::nan(""), std::nan("")}; }
double Machine::energy_j() const { return std::nan(""); }

parallel::Ranks Machine::connect(const Deck& deck, const Communicator& world) {
  return parallel::connect(world, forecast::grid_shape(deck, world.size()), host_transports(deck));
}

std::size_t Machine::memory_left(const forecast::TrainerPlan& plan) const {
  return left_on_host(plan);
}
void Machine::require_memory(const forecast::TrainerPlan&, std::size_t) const {}

#endif

std::vector<results::RankInfo> gather_ranks(const Communicator& world, const Machine& machine) {
  std::vector<results::RankInfo> ranks;
  for (const std::string& text : world.gather(results::to_text(machine.rank_info())))
    ranks.push_back(results::rank_from_text(text));
  return ranks;
}

}  // namespace stowage::run
