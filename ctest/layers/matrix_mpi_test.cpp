// The same on several ranks, each with data of its own: collectives lie inside the graphs. Built
// twice: for MPI on the host, and for NCCL with a GPU for each rank (STOWAGE_TEST_CUDA).
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "matrix.hpp"
#include "parallel/job/mpi.hpp"
#include "parallel/proof/communication_trace.hpp"
#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"

#if STOWAGE_TEST_CUDA
#include <cuda_runtime_api.h>

#include "execution/cuda_backend.hpp"
#include "parallel/transport/nccl.hpp"
#endif

namespace stowage::ctest {
namespace {

/// Ranks of an axis.
struct Sizes {
  int tensor = 1, context = 1, expert = 1, pipeline = 1;
};

#if STOWAGE_TEST_CUDA
/// Made once, and gone before MPI ends.
struct Transports : ::testing::Environment {
  std::unique_ptr<execution::Backend> backend;
  std::map<std::string, std::shared_ptr<parallel::Transport>> by_group;

  void TearDown() override {
    by_group.clear();
    backend.reset();
  }
};
auto& transports = *static_cast<Transports*>(::testing::AddGlobalTestEnvironment(new Transports));
#endif

/// Where the ranks of this build compute, and how they reduce.
struct Ranks {
  const parallel::Communicator world = parallel::Communicator::world();
#if STOWAGE_TEST_CUDA
  const int gpu = world.split_by_host().rank();

  bool usable() const {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;
    return world.max(gpus <= gpu ? 1 : 0) == 0;
  }
  std::unique_ptr<execution::Backend> backend() const {
    return execution::make_cuda_backend({gpu});
  }
  static std::shared_ptr<parallel::Transport> transport(const parallel::Communicator& ranks,
                                                        const std::string& group) {
    if (!transports.backend)
      transports.backend = execution::make_cuda_backend({ranks.split_by_host().rank()});
    std::shared_ptr<parallel::Transport>& one = transports.by_group[group];
    if (!one)
      one = parallel::make_nccl_transport(*transports.backend, ranks, group, {.patience_s = 60});
    return one;
  }
#else
  bool usable() const { return true; }
  std::unique_ptr<execution::Backend> backend() const { return execution::make_host_backend(); }
  static std::shared_ptr<parallel::Transport> transport(const parallel::Communicator& ranks,
                                                        const std::string& group) {
    return parallel::make_host_transport(ranks, group);
  }
#endif

  /// All ranks of the job, but for the axes that are given, on the data axis.
  void adjust(forecast::TrainerOptions& options, Sizes sizes = {}) const {
    options.sharing.ranks = parallel::connect(
        world,
        parallel::fit_grid(world.size(), sizes.tensor, sizes.context, sizes.expert, sizes.pipeline),
        [this](const parallel::Communicator& ranks, const std::string& group) {
          return transport(ranks, group);
        });
    options.planner.chains = {STOWAGE_TEST_CUDA, std::string(parallel::name(parallel::kApart))};
  }
};

/// What a grid of ranks runs of these cells: all on a GPU, since graphs hold what NCCL makes, and
/// where STOWAGE_EVERY_PAIR is set. Each of the hands is run by two grids at least.
std::vector<Cell> dealt(std::size_t grid, std::size_t hands, const std::vector<Cell>& cells) {
  const bool all = STOWAGE_TEST_CUDA || std::getenv("STOWAGE_EVERY_PAIR") != nullptr;
  return all ? cells : dealt_cells(grid % hands, hands, cells);
}
std::vector<Cell> hand(std::size_t grid) { return dealt(grid, 6, pairwise_cells()); }

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run) {
  const Ranks ranks;
  if (!ranks.usable()) GTEST_SKIP() << "no GPU for each rank";
  Matrix cells({.backend = [&] { return ranks.backend(); },
                .adjust = [&](forecast::TrainerOptions& options) { ranks.adjust(options); },
                .rank = ranks.world.rank()});
  for (const Cell& cell : hand(0)) cells.check(cell);
  for (const Cell& cell : knob_cells()) cells.check(cell);
}

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_with_zero) {
  const Ranks ranks;
  if (!ranks.usable()) GTEST_SKIP() << "no GPU for each rank";
  Matrix cells({.backend = [&] { return ranks.backend(); },
                .adjust =
                    [&](forecast::TrainerOptions& options) {
                      ranks.adjust(options);
                      options.sharing.zero = true;
                    },
                .rank = ranks.world.rank()});
  for (const Cell& cell : hand(1)) cells.check(cell);
}

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_with_muon) {
  const Ranks ranks;
  if (!ranks.usable()) GTEST_SKIP() << "no GPU for each rank";
  Matrix cells({.backend = [&] { return ranks.backend(); },
                .adjust =
                    [&](forecast::TrainerOptions& options) {
                      ranks.adjust(options);
                      options.sharing.zero = true;
                    },
                .rank = ranks.world.rank(),
                .optimizer = &layers::kMuon});
  for (const Cell& cell : hand(2)) cells.check(cell);
}

/// The cells of a schedule of a pipeline with a stage for each rank, and those of the knobs.
/// @param budget_percent of what the plain plan moves: single tensors weigh more in a stage, and
/// what products for weights hold while they wait cannot leave
void check_stages(layers::PipelineSchedule schedule, std::size_t budget_percent) {
  const Ranks ranks;
  if (!ranks.usable()) GTEST_SKIP() << "no GPU for each rank";
  const bool interleaved = schedule == layers::PipelineSchedule::interleaved;
  Matrix cells({.backend = [&] { return ranks.backend(); },
                .adjust =
                    [&](forecast::TrainerOptions& options) {
                      ranks.adjust(options, {.pipeline = ranks.world.size()});
                      options.model.pattern = "M*-EM|E-*M";
                      options.sharing.schedule = schedule;
                      if (interleaved) {
                        options.model.pattern = "M*-|EM|E-|*M";
                        options.model.virtual_stages = 2;
                        const int p = ranks.world.size();  // microbatches go in groups of p
                        options.step.microbatches = (options.step.microbatches + p - 1) / p * p;
                      }
                    },
                .budget_percent = budget_percent});
  const std::size_t grid = 3 + static_cast<std::size_t>(schedule);
  for (const Cell& cell : hand(grid)) cells.check(cell);
  for (const Cell& cell : dealt(grid, 3, knob_cells())) cells.check(cell);
}

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_with_stages) {
  check_stages(layers::PipelineSchedule::one_forward_one_backward, 85);
}

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_with_interleaved_stages) {
  check_stages(layers::PipelineSchedule::interleaved, 85);
}

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_without_bubble) {
  check_stages(layers::PipelineSchedule::zero_bubble, 90);
}

/// Ranks that share packed sequences, whose documents cross them, besides layers' own exchanges.
/// With zigzag chunks attention's result comes by messages, and is no more computed again.
TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_with_shared_sequences) {
  const Ranks ranks;
  if (!ranks.usable()) GTEST_SKIP() << "no GPU for each rank";
  if (ranks.world.size() == 1) GTEST_SKIP() << "one rank shares with none";
  using Exchange = layers::ModelConfig::Attention::Exchange;
  std::size_t grid = 0;
  for (const auto& [exchange, zigzag] :
       {std::pair{Exchange::keys, false}, {Exchange::heads, false}, {Exchange::keys, true}}) {
    Matrix cells({.backend = [&] { return ranks.backend(); },
                  .adjust =
                      [&](forecast::TrainerOptions& options) {
                        ranks.adjust(options, {.context = ranks.world.size()});
                        options.step.tokens = options.step.sequence = 24;
                        options.model.attention.exchange = exchange;
                        options.model.attention.zigzag = zigzag;
                        if (zigzag)
                          std::erase_if(options.planner.policy.recompute,
                                        [](const auto& one) { return one.name == "attn_proj"; });
                      }});
    for (const Cell& cell : hand(grid++)) cells.check(cell);
  }
}

/// What ranks share of layers: their parts; heads and groups that are too few for all of them; or
/// experts alone, over other tokens, whose rows are gathered or travel by slots.
enum class Shared { parts, few_heads, experts, experts_by_slots };

/// The cells with layers shared by all ranks.
void check_cut_layers(Shared shared) {
  using Exchange = layers::ModelConfig::Moe::Exchange;
  const bool slots = shared == Shared::experts_by_slots,
             expert = shared == Shared::experts || slots;
  const Ranks ranks;
  if (!ranks.usable()) GTEST_SKIP() << "no GPU for each rank";
  if (ranks.world.size() == 1) GTEST_SKIP() << "one rank shares with none";
  Matrix cells({.backend = [&] { return ranks.backend(); },
                .adjust =
                    [&](forecast::TrainerOptions& options) {
                      const int all = ranks.world.size();
                      ranks.adjust(options, expert ? Sizes{.expert = all} : Sizes{.tensor = all});
                      options.step.tokens = options.step.sequence = 24;
                      options.model.moe.experts = 6;
                      options.model.moe.exchange = slots ? Exchange::slots : Exchange::gather;
                      options.model.vocabulary = 14;
                      if (shared != Shared::few_heads) return;
                      options.model.attention.kv_heads = 1;
                      options.model.mamba.groups = 1;
                    },
                .rank = expert ? ranks.world.rank() : 0});
  for (const Cell& cell : hand(3 + static_cast<std::size_t>(shared))) cells.check(cell);
}

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_with_cut_layers) {
  check_cut_layers(Shared::parts);
}

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_with_repeated_rows) {
  check_cut_layers(Shared::few_heads);
}

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_with_shared_experts) {
  check_cut_layers(Shared::experts);
}

TEST(matrix_mpi, every_choice_gives_the_bits_of_the_plain_run_with_experts_by_slots) {
  check_cut_layers(Shared::experts_by_slots);
}

/// Payloads and scales of products of 8 bits leave, come back and are made again as on one rank.
void check_products_of_8_bits(bool cut, const Cell& cell) {
  const Ranks ranks;
  if (!ranks.usable()) GTEST_SKIP() << "no GPU for each rank";
  Matrix cells({.backend = [&] { return ranks.backend(); },
                .adjust =
                    [&](forecast::TrainerOptions& options) {
                      quantise(options);
                      options.sharing.zero = !cut;
                      ranks.adjust(options, {.tensor = cut ? ranks.world.size() : 1});
                      if (!cut) return;
                      // Multiples of 16 on each of four ranks.
                      options.model.width = options.step.tokens = options.step.sequence = 64;
                      options.model.attention = {4, 4, 16, true, {100.0}};
                      options.model.mamba = {
                          .heads = 8, .head_dim = 8, .groups = 4, .state = 7, .chunk = 4};
                      options.model.delta = {
                          .key_heads = 4, .value_heads = 8, .key_head_dim = 6, .value_head_dim = 8};
                      options.model.mlp.ffn = options.model.moe.shared_ffn = 64;
                      options.model.moe.experts = 8;
                      options.model.vocabulary = 16;
                    },
                .rank = cut ? 0 : ranks.world.rank()});
  cells.check(cell);
}

TEST(matrix_mpi, whole_products_of_8_bits_have_the_bits_of_the_plain_run) {
  check_products_of_8_bits(
      false, {.graphs = "step", .offload = "half", .microbatches = 2, .states = true});
}

TEST(matrix_mpi, cut_products_of_8_bits_have_the_bits_of_the_plain_run) {
  check_products_of_8_bits(
      true, {.graphs = "layer", .offload = "all", .recompute = "some", .microbatches = 2});
}

}  // namespace
}  // namespace stowage::ctest
