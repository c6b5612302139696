// Rows of [parallel], and what they and the number of ranks must be.
#include "forecast/plan/parallel_section.hpp"

#include <algorithm>

#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "inputs/deck/layer_kinds.hpp"
#include "layers/recording/config_section.hpp"

namespace stowage::inputs {

using forecast::ParallelConfig;

template <>
std::vector<Row<ParallelConfig>> rows<ParallelConfig>() {
  return {
      row(&ParallelConfig::data,
          {.key = "parallel.data",
           .unit = "ranks",
           .range = between(0, kMostCount),
           .help = "Data-parallel ranks. 0: all ranks that the other axes leave."}),
      row(&ParallelConfig::tensor,
          {.key = "parallel.tensor",
           .unit = "ranks",
           .range = between(1, kMostCount),
           .help = "Ranks that share every layer: heads, groups, MLP columns, experts and the "
                   "vocabulary "
                   "are cut, and the rows between layers are shared out (sequence parallelism)."}),
      row(&ParallelConfig::context,
          {.key = "parallel.context",
           .unit = "ranks",
           .range = between(1, kMostCount),
           .help =
               "Ranks that share sequences, each a stretch of the tokens of a microbatch: "
               "attention "
               "gathers keys and values, Mamba layers hand states on. Documents may cross ranks."}),
      row(&ParallelConfig::context_attention,
          {.key = "parallel.context_attention",
           .help =
               "What context ranks exchange for attention. all_gather: keys and values of all "
               "tokens; all_to_all: heads, which shares causal work evenly and needs heads that "
               "divide among the ranks; a query group may go to several. auto: what is "
               "predicted to be quicker with the deck's [machine]."},
          {{"auto", layers::ModelConfig::Attention::Exchange::automatic},
           {"all_gather", layers::ModelConfig::Attention::Exchange::keys},
           {"all_to_all", layers::ModelConfig::Attention::Exchange::heads}}),
      row(&ParallelConfig::zigzag,
          {.key = "parallel.context_tokens",
           .help =
               "Whose attention a context rank computes where keys are gathered. contiguous: its "
               "own tokens', so the last rank has most causal work. zigzag: an early and a late "
               "stretch of the tokens, exchanged around attention, so the work is even."},
          {{"contiguous", false}, {"zigzag", true}}),
      row(&ParallelConfig::expert, {.key = "parallel.expert",
                                    .unit = "ranks",
                                    .range = between(1, kMostCount),
                                    .help = "Ranks with other sequences that share the experts of "
                                            "MoE layers, as tensor ranks do."}),
      row(&ParallelConfig::expert_exchange,
          {.key = "parallel.expert_exchange",
           .help =
               "How ranks that share experts exchange rows. all_gather: all of them to all ranks; "
               "all_to_all: each once to every rank that has some of its experts, in slots of "
               "which there are as many as parallel.expert_capacity says. auto: what is predicted "
               "to be quicker with the deck's [machine]. The same bits either way."},
          {{"auto", layers::ModelConfig::Moe::Exchange::automatic},
           {"all_gather", layers::ModelConfig::Moe::Exchange::gather},
           {"all_to_all", layers::ModelConfig::Moe::Exchange::slots}}),
      row(&ParallelConfig::expert_capacity,
          {.key = "parallel.expert_capacity",
           .range = above(0),
           .help =
               "Classes of room for rows of experts that ranks share, in those that a rank gets if "
               "the load is balanced; behind them is one for all rows. A step runs in the "
               "smallest class that would have held the step before, and again in a larger "
               "one if that has too little room. The same bits either way."}),
      row(&ParallelConfig::overlap_microbatches,
          {.key = "parallel.overlap_microbatches",
           .help =
               "Backward of a microbatch goes on beside forward of the next, in turns at their "
               "exchanges, so that what ranks exchange for one lies beside compute of the other. "
               "Needs several microbatches a step, parallel.pipeline = 1, and with Mamba layers "
               "parallel.context = 1; planning takes longer the more microbatches there are. The "
               "same bits either way."}),
      row(&ParallelConfig::pipeline,
          {.key = "parallel.pipeline",
           .unit = "ranks",
           .range = between(1, kMostCount),
           .help = "Pipeline stages: ranks that share out the layers of the model, in order. Cut "
                   "where model.pattern has |, or where predicted times are most even."}),
      row(&ParallelConfig::virtual_stages,
          {.key = "parallel.virtual_stages",
           .unit = "stages",
           .range = between(1, kMostCount),
           .help =
               "Stages of each pipeline rank: rank r of p has the stages r, p + r, 2 p + r and so "
               "on. More than one go with parallel.schedule interleaved or auto."}),
      row(&ParallelConfig::schedule,
          {.key = "parallel.schedule",
           .help =
               "How stages pass microbatches on. 1f1b: one forward, one backward. interleaved: the "
               "same over parallel.virtual_stages stages of each rank, which hand on earlier; "
               "microbatches of a step must be a multiple of parallel.pipeline. zero_bubble: the "
               "products that make gradients of weights fill what 1f1b leaves empty; they hold "
               "what "
               "they read until then, up to parallel.zero_bubble_bytes. auto: the one that is "
               "predicted to be quickest. The same bits any way."},
          {{"1f1b", layers::PipelineSchedule::one_forward_one_backward},
           {"interleaved", layers::PipelineSchedule::interleaved},
           {"zero_bubble", layers::PipelineSchedule::zero_bubble},
           {"auto", layers::PipelineSchedule::automatic}}),
      row(&ParallelConfig::zero_bubble_bytes,
          {.key = "parallel.zero_bubble_bytes",
           .unit = "B",
           .range = between(0, kMostBytes),
           .help =
               "Memory that a rank may hold of microbatches from pass to pass where zero_bubble "
               "puts gradients of weights off; they wait of fewer microbatches if all would need "
               "more. 0: as much as the rank that holds most in 1f1b. The same bits any way."}),
      row(&ParallelConfig::zero,
          {.key = "parallel.zero",
           .range = between(0, 1),
           .help =
               "1: masters and moments are cut over the ranks that have the same parameters (ZeRO "
               "stage 1). The same bits either way."}),
      row(&ParallelConfig::bucket_elements,
          {.key = "parallel.bucket_elements",
           .range = between(1, kMostTokens),
           .help = "Elements after which a bucket of gradients is closed: a smaller one is summed "
                   "earlier, a larger one uses a link better. The same bits either way."}),
      row(&ParallelConfig::bf16_gradients,
          {.key = "parallel.gradient_dtype",
           .numerics = true,
           .help = "What travels when gradients are summed over ranks. bf16: each rank's part is "
                   "rounded once; sums are fp32 all the same."},
          {{"fp32", false}, {"bf16", true}}),
      row(&ParallelConfig::copies,
          {.key = "parallel.transport",
           .help = "auto: copy engines move bytes between GPUs of one host that reach each other, "
                   "so that "
                   "compute keeps its SMs, and NCCL elsewhere. The same bits either way."},
          {{"auto", true}, {"nccl", false}}),
      row(&ParallelConfig::sm_margin,
          {.key = "parallel.sm_margin",
           .range = between(0, 64),
           .numerics = true,
           .help = "Multiprocessors of a GPU that products and persistent kernels leave to "
                   "communication, at the price of as much of their rate. Kernels of communication "
                   "fit beside most products; NCCL's do not."}),
      row(&ParallelConfig::nccl_algorithm,
          {.key = "parallel.nccl_algorithm",
           .allowed = {"Ring", "Tree"},
           .help =
               "How NCCL reduces; pinned before it starts. NCCL_ALGO in the environment wins."}),
      row(&ParallelConfig::nccl_protocol, {.key = "parallel.nccl_protocol",
                                           .allowed = {"Simple", "LL128", "LL"},
                                           .help = "How NCCL moves data; pinned before it starts. "
                                                   "NCCL_PROTO in the environment wins."}),
      row(&ParallelConfig::nccl_channels,
          {.key = "parallel.nccl_channels",
           .range = between(0, 64),
           .help =
               "Thread blocks that a collective of NCCL takes from compute. 0: NCCL's choice."}),
      row(&ParallelConfig::patience_s,
          {.key = "parallel.collective_patience_s",
           .unit = "s",
           .range = above(0),
           .help = "A collective that takes longer is stuck: the job ends and names it."}),
  };
}

}  // namespace stowage::inputs

namespace stowage::forecast {

using execution::throw_usage;
using inputs::Deck;
using inputs::key;
using inputs::TrainConfig;
using layers::ModelConfig;
using layers::PipelineSchedule;

namespace {

/// The extents of the process grid, whose product is a number of ranks.
void check_grid(const ParallelConfig& grid, const Deck& deck) {
  constexpr double kMostRanks = 1 << 20;
  const std::string_view tensor = key(&ParallelConfig::tensor);
  const std::string_view context = key(&ParallelConfig::context);
  const std::string_view expert = key(&ParallelConfig::expert);
  const std::string_view pipeline = key(&ParallelConfig::pipeline);
  check_product(deck, "ranks", {tensor, context, expert, pipeline}, kMostRanks);
  check_product(deck, "stages", {pipeline, key(&ParallelConfig::virtual_stages)}, kMostRanks);
  if (grid.data > 0)  // 0: what is left
    check_product(deck, "ranks", {tensor, context, expert, pipeline, key(&ParallelConfig::data)},
                  kMostRanks);
}

/// Several stages of a rank, and the schedule that is for them.
void check_stages(const ParallelConfig& grid, const Deck& deck) {
  const bool several = grid.virtual_stages > 1;
  if (several && grid.pipeline == 1)
    throw_usage("{} needs {} of at least 2, not {}", cite(deck, &ParallelConfig::virtual_stages),
                key(&ParallelConfig::pipeline), cite(deck, &ParallelConfig::pipeline));
  if (several && grid.schedule != PipelineSchedule::interleaved &&
      grid.schedule != PipelineSchedule::automatic)
    throw_usage("{} goes with {} = \"interleaved\" or \"auto\", not {}",
                cite(deck, &ParallelConfig::virtual_stages), key(&ParallelConfig::schedule),
                cite(deck, &ParallelConfig::schedule));
  if (!several && grid.schedule == PipelineSchedule::interleaved)
    throw_usage("{} needs at least 2 stages of each rank, not {}",
                cite(deck, &ParallelConfig::schedule), cite(deck, &ParallelConfig::virtual_stages));
}

/// Microbatches side by side are for ranks that have all layers and exchange alike in them: in
/// recurrent layers the first and the last segment of a sequence exchange less than the others.
void check_overlap(const ParallelConfig& grid, const Deck& deck) {
  if (!grid.overlap_microbatches) return;
  if (grid.pipeline > 1)
    throw_usage("{} needs {} = 1, not {}", cite(deck, &ParallelConfig::overlap_microbatches),
                key(&ParallelConfig::pipeline), cite(deck, &ParallelConfig::pipeline));
  const std::string recurrent = inputs::recurrent_layers(inputs::read<ModelConfig>(deck).letters());
  if (grid.context > 1 && !recurrent.empty())
    throw_usage("{} needs {} = 1 with the {} layers of {}, not {}",
                cite(deck, &ParallelConfig::overlap_microbatches), key(&ParallelConfig::context),
                recurrent, cite(deck, &ModelConfig::pattern), cite(deck, &ParallelConfig::context));
}

/// One tree of microbatches, and all sums within one of them made by one rank.
void check_same_bits(const ParallelConfig& grid, const Deck& deck) {
  if (!read(deck, &inputs::RunConfig::same_on_ranks)) return;
  const std::string what = cite(deck, &inputs::RunConfig::same_on_ranks);
  const auto refuse = [&](const std::string& given, const std::string& allowed) {
    throw_usage("{}: not with {}; allowed: {}", what, given, allowed);
  };
  for (const auto member :
       {&ParallelConfig::tensor, &ParallelConfig::context, &ParallelConfig::expert})
    if (grid.*member > 1) refuse(cite(deck, member), "1, and data and pipeline ranks");
  if (grid.bf16_gradients)
    refuse(cite(deck, &ParallelConfig::bf16_gradients), "fp32, which rounds no partial sum");
  if (read(deck, &ModelConfig::Mtp::depths) > 0)
    refuse(cite(deck, &ModelConfig::Mtp::depths), "0: the losses of further tokens have no tree");
  if (grid.pipeline > 1 && read(deck, &ModelConfig::tied_embeddings))
    refuse(
        cite(deck, &ParallelConfig::pipeline) + " and " + cite(deck, &ModelConfig::tied_embeddings),
        "1 pipeline rank, or embeddings that are not tied");
}

/// Leaves are whole microbatches, and whole leaves are on one rank.
/// @param parts ranks with other sequences  @param microbatches of each
void check_leaves(const Deck& deck, std::int64_t parts, std::int64_t microbatches) {
  const auto leaves = read(deck, &inputs::RunConfig::same_bits_leaves);
  if (leaves == 0) return;
  const std::string what = cite(deck, &inputs::RunConfig::same_bits_leaves);
  if (!read(deck, &inputs::RunConfig::same_on_ranks))
    throw_usage("{} needs {} = \"ranks\"", what, key(&inputs::RunConfig::same_on_ranks));
  if ((parts * microbatches) % leaves != 0)
    throw_usage("{} must divide the {} microbatches of a step; 0: each is one", what,
                parts * microbatches);
  if (leaves % parts != 0)
    throw_usage("{} must be a multiple of the {} ranks with other sequences", what, parts);
}

/// It takes two.
void check_overlapped(const ParallelConfig& grid, const Deck& deck, std::int64_t microbatches) {
  if (!grid.overlap_microbatches || microbatches > 1) return;
  throw_usage("{} needs several microbatches of a step; {} makes 1 on each rank",
              cite(deck, &ParallelConfig::overlap_microbatches),
              cite(deck, &TrainConfig::global_batch_size));
}

/// Interleaved stages take microbatches in full groups.
void check_groups(const ParallelConfig& grid, const Deck& deck, std::int64_t microbatches) {
  const std::string pattern = read(deck, &ModelConfig::pattern);
  const bool cut_for_them =
      grid.virtual_stages > 1 &&
      std::ranges::count(pattern, '|') + 1 == std::int64_t{grid.pipeline} * grid.virtual_stages;
  if (grid.schedule != PipelineSchedule::interleaved && !cut_for_them) return;
  if (microbatches % grid.pipeline == 0) return;
  throw_usage("{} needs microbatches of a step that are a multiple of {}; {} makes {} on each rank",
              cite(deck, &ParallelConfig::schedule), cite(deck, &ParallelConfig::pipeline),
              cite(deck, &TrainConfig::global_batch_size), microbatches);
}

}  // namespace

void check(const ParallelConfig& grid, const Deck& deck) {
  if (grid.zigzag && grid.context_attention == ModelConfig::Attention::Exchange::heads)
    throw_usage("{} is for gathered keys: {} shares the work evenly by heads",
                cite(deck, &ParallelConfig::zigzag),
                cite(deck, &ParallelConfig::context_attention));
  check_grid(grid, deck);
  check_stages(grid, deck);
  check_overlap(grid, deck);
  check_same_bits(grid, deck);
}

}  // namespace stowage::forecast

namespace stowage::inputs {

using execution::throw_usage;

std::int64_t check_ranks(const Deck& deck, std::int64_t ranks) {
  const auto grid = read<ParallelConfig>(deck);
  const auto train = read<TrainConfig>(deck);
  const std::int64_t replica = grid.replica();
  if (ranks % replica != 0)
    throw_usage("{}, {}, {} and {} need a multiple of {} ranks, {} were started",
                cite(deck, &ParallelConfig::tensor), cite(deck, &ParallelConfig::context),
                cite(deck, &ParallelConfig::expert), cite(deck, &ParallelConfig::pipeline), replica,
                ranks);
  if (grid.data != 0 && grid.data != ranks / replica)
    throw_usage("{} must be 0 or the number of ranks that the other axes leave, {}",
                cite(deck, &ParallelConfig::data), ranks / replica);
  const std::int64_t tokens = train.microbatch_tokens();
  const std::int64_t cuts = std::int64_t{grid.tensor} * grid.context;
  if (tokens % cuts != 0)
    throw_usage(
        "{} and {} share the {} * {} = {} tokens of a microbatch: these must be a multiple of {}",
        cite(deck, &ParallelConfig::tensor), cite(deck, &ParallelConfig::context),
        cite(deck, &TrainConfig::seq_length), cite(deck, &TrainConfig::micro_batch_size), tokens,
        cuts);
  if (grid.zigzag && grid.context > 1 && tokens % (std::int64_t{2} * grid.context) != 0)
    throw_usage(
        "{} makes two stretches for each of {} ranks: the {} tokens of a microbatch must "
        "divide by {}",
        cite(deck, &ParallelConfig::zigzag), cite(deck, &ParallelConfig::context), tokens,
        2 * grid.context);
  // Ranks with other sequences.
  const std::int64_t parts = ranks / (cuts * grid.pipeline);
  const std::int64_t share = parts * train.micro_batch_size;
  if (train.global_batch_size % share != 0)
    throw_usage(
        "{} must be a multiple of ranks with other sequences * micro_batch_size = {} * {} = {}",
        cite(deck, &TrainConfig::global_batch_size), parts, train.micro_batch_size, share);
  const std::int64_t microbatches = train.global_batch_size / share;
  forecast::check_groups(grid, deck, microbatches);
  forecast::check_overlapped(grid, deck, microbatches);
  forecast::check_leaves(deck, parts, microbatches);
  return microbatches;
}

}  // namespace stowage::inputs
