// Rows of [parallel], [offload], [recompute], [graphs] and [execution]: where and how, never what.
#include "inputs/deck/registry.hpp"

namespace stowage::inputs::detail {

using std::string;
using Words = std::vector<std::string_view>;

namespace {

// Names of saved tensors, as in the table of modules in the user's guide.
const Words kModules = {"attn_norm", "mlp_norm",   "mamba_norm",    "qkv_linear",
                        "mlp_fc1",   "expert_fc1", "mamba_in_proj", "core_attn",
                        "attn_proj", "mlp_act",    "shared_expert", "moe_act",
                        "group_mlp", "mamba_conv", "mamba_ssm",     "mamba_out_proj"};

std::vector<Parameter> parallel_rows() {
  return {
      {.key = "parallel.data",
       .fallback = 0,
       .unit = "ranks",
       .range = between(0, kMostCount),
       .help = "Data-parallel ranks. 0: all ranks that the other axes leave."},
      {.key = "parallel.tensor",
       .fallback = 1,
       .unit = "ranks",
       .range = between(1, kMostCount),
       .help =
           "Ranks that share every layer: heads, groups, MLP columns, experts and the vocabulary "
           "are cut, and the rows between layers are shared out (sequence parallelism)."},
      {.key = "parallel.context",
       .fallback = 1,
       .unit = "ranks",
       .range = between(1, kMostCount),
       .help =
           "Ranks that share sequences, each a stretch of the tokens of a microbatch: attention "
           "gathers keys and values, Mamba layers hand states on. Documents may cross ranks."},
      {.key = "parallel.context_attention",
       .fallback = string("auto"),
       .allowed = {"auto", "all_gather", "all_to_all"},
       .help = "What context ranks exchange for attention. all_gather: keys and values of all "
               "tokens; all_to_all: heads, which shares causal work evenly and needs heads that "
               "divide among the ranks; a query group may go to several. auto: what is "
               "predicted to be quicker with the deck's [machine]."},
      {.key = "parallel.context_tokens",
       .fallback = string("contiguous"),
       .allowed = {"contiguous", "zigzag"},
       .help = "Whose attention a context rank computes where keys are gathered. contiguous: its "
               "own tokens', so the last rank has most causal work. zigzag: an early and a late "
               "stretch of the tokens, exchanged around attention, so the work is even."},
      {.key = "parallel.expert",
       .fallback = 1,
       .unit = "ranks",
       .range = between(1, kMostCount),
       .help =
           "Ranks with other sequences that share the experts of MoE layers, as tensor ranks do."},
      {.key = "parallel.expert_exchange",
       .fallback = string("auto"),
       .allowed = {"auto", "all_gather", "all_to_all"},
       .help = "How ranks that share experts exchange rows. all_gather: all of them to all ranks; "
               "all_to_all: each once to every rank that has some of its experts, in slots of "
               "which there are as many as parallel.expert_capacity says. auto: what is predicted "
               "to be quicker with the deck's [machine]. The same bits either way."},
      {.key = "parallel.expert_capacity",
       .fallback = std::vector<double>{1.25, 2},
       .range = above(0),
       .help = "Classes of room for rows of experts that ranks share, in those that a rank gets if "
               "the load is balanced; behind them is one for all rows. A step runs in the "
               "smallest class that would have held the step before, and again in a larger "
               "one if that has too little room. The same bits either way."},
      {.key = "parallel.overlap_microbatches",
       .fallback = false,
       .help = "Backward of a microbatch goes on beside forward of the next, in turns at their "
               "exchanges, so that what ranks exchange for one lies beside compute of the other. "
               "Needs several microbatches a step, parallel.pipeline = 1, and with Mamba layers "
               "parallel.context = 1; planning takes longer the more microbatches there are. The "
               "same bits either way."},
      {.key = "parallel.pipeline",
       .fallback = 1,
       .unit = "ranks",
       .range = between(1, kMostCount),
       .help = "Pipeline stages: ranks that share out the layers of the model, in order. Cut "
               "where model.pattern has |, or where predicted times are most even."},
      {.key = "parallel.virtual_stages",
       .fallback = 1,
       .unit = "stages",
       .range = between(1, kMostCount),
       .help = "Stages of each pipeline rank: rank r of p has the stages r, p + r, 2 p + r and so "
               "on. More than one go with parallel.schedule interleaved or auto."},
      {.key = "parallel.schedule",
       .fallback = string("1f1b"),
       .allowed = {"1f1b", "interleaved", "zero_bubble", "auto"},
       .help =
           "How stages pass microbatches on. 1f1b: one forward, one backward. interleaved: the "
           "same over parallel.virtual_stages stages of each rank, which hand on earlier; "
           "microbatches of a step must be a multiple of parallel.pipeline. zero_bubble: the "
           "products that make gradients of weights fill what 1f1b leaves empty; they hold what "
           "they read until then, up to parallel.zero_bubble_bytes. auto: the one that is "
           "predicted to be quickest. The same bits any way."},
      {.key = "parallel.zero_bubble_bytes",
       .fallback = 0,
       .unit = "B",
       .range = between(0, kMostBytes),
       .help = "Memory that a rank may hold of microbatches from pass to pass where zero_bubble "
               "puts gradients of weights off; they wait of fewer microbatches if all would need "
               "more. 0: as much as the rank that holds most in 1f1b. The same bits any way."},
      {.key = "parallel.zero",
       .fallback = 0,
       .range = between(0, 1),
       .help = "1: masters and moments are cut over the ranks that have the same parameters (ZeRO "
               "stage 1). The same bits either way."},
      {.key = "parallel.bucket_elements",
       .fallback = 4194304,
       .range = between(1, kMostTokens),
       .help = "Elements after which a bucket of gradients is closed: a smaller one is summed "
               "earlier, a larger one uses a link better. The same bits either way."},
      {.key = "parallel.gradient_dtype",
       .fallback = string("fp32"),
       .allowed = {"fp32", "bf16"},
       .numerics = true,
       .help = "What travels when gradients are summed over ranks. bf16: each rank's part is "
               "rounded once; sums are fp32 all the same."},
      {.key = "parallel.transport",
       .fallback = string("auto"),
       .allowed = {"auto", "nccl"},
       .help =
           "auto: copy engines move bytes between GPUs of one host that reach each other, so that "
           "compute keeps its SMs, and NCCL elsewhere. The same bits either way."},
      {.key = "parallel.sm_margin",
       .fallback = 0,
       .range = between(0, 64),
       .numerics = true,
       .help = "Multiprocessors of a GPU that products and persistent kernels leave to "
               "communication, at the price of as much of their rate. Kernels of communication "
               "fit beside most products; NCCL's do not."},
      {.key = "parallel.nccl_algorithm",
       .fallback = string("Ring"),
       .allowed = {"Ring", "Tree"},
       .help = "How NCCL reduces; pinned before it starts. NCCL_ALGO in the environment wins."},
      {.key = "parallel.nccl_protocol",
       .fallback = string("Simple"),
       .allowed = {"Simple", "LL128", "LL"},
       .help = "How NCCL moves data; pinned before it starts. NCCL_PROTO in the environment wins."},
      {.key = "parallel.nccl_channels",
       .fallback = 16,
       .range = between(0, 64),
       .help = "Thread blocks that a collective of NCCL takes from compute. 0: NCCL's choice."},
      {.key = "parallel.collective_patience_s",
       .fallback = 600.0,
       .unit = "s",
       .range = above(0),
       .help = "A collective that takes longer is stuck: the job ends and names it."},
  };
}

std::vector<Parameter> offload_rows() {
  return {
      {.key = "offload.policy",
       .fallback = string("none"),
       .allowed = {"none", "manual", "auto"},
       .help = "none: everything saved stays on the device. manual: what the keys below say. auto: "
               "the planner chooses within the budgets."},
      {.key = "offload.modules",
       .fallback = std::vector<string>{},
       .allowed = kModules,
       .help = "Saved tensors that may leave the device (manual)."},
      {.key = "offload.fraction",
       .fallback = 1.0,
       .range = between(0, 1),
       .help = "Part of the bytes of each module name that leaves: whole tensors, earliest in "
               "forward first, never above."},
      {.key = "offload.min_tensor_bytes",
       .fallback = 1 << 20,
       .unit = "B",
       .range = between(0, kMostBytes),
       .help = "Smaller buffers stay."},
      {.key = "offload.delta_bytes_across_pp_ranks",
       .fallback = 0,
       .unit = "B",
       .range = between(0, kMostBytes / kMostCount),
       .help = "Pipeline rank p keeps p times as many bytes, earliest in backward first."},
      {.key = "offload.max_inflight",
       .fallback = -1,
       .range = between(-1, kMostInt),
       .help = "Copies to the host in flight per module name before compute waits for the oldest. "
               "0: each is joined at once. -1: no cap."},
      {.key = "offload.max_inflight_bytes_d2h",
       .fallback = -1,
       .unit = "B",
       .range = between(-1, kMostBytes),
       .help = "Bytes in flight to the host. -1: no cap."},
      {.key = "offload.max_inflight_bytes_h2d",
       .fallback = -1,
       .unit = "B",
       .range = between(-1, kMostBytes),
       .help = "Bytes in flight from the host. -1: no cap."},
      {.key = "offload.delay_until_graph",
       .fallback = false,
       .help = "The copies of a graph segment start right after the next launch, the last ones at "
               "the end of their microbatch. With graphs.mode = \"scopes\"."},
      {.key = "offload.keep_unhidden",
       .fallback = true,
       .help = "What could not come back in time stays on the device."},
      {.key = "offload.device_budget_bytes",
       .fallback = 0,
       .unit = "B",
       .range = between(0, kMostBytes),
       .help = "Device memory that auto may use, with the copy that checkpoint.copy = \"device\" "
               "asks for, and larger classes of room for rows of experts. 0: offload exactly what "
               "costs nothing."},
      {.key = "offload.berths",
       .fallback = true,
       .help =
           "auto with a budget may keep tensors at berths, which cost nothing: in the memory of "
           "gradients that are written after their last use."},
      {.key = "offload.host_budget_bytes",
       .fallback = -1,
       .unit = "B",
       .range = between(-1, kMostBytes),
       .help = "Pinned host memory per rank. -1: no cap."},
      {.key = "recompute.modules",
       .fallback = std::vector<string>{},
       .allowed = kModules,
       .help = "Saved tensors that are computed again in backward: all but the _norm names, from "
               "which reruns start. Listed in both tables: recomputed where the producers can be "
               "rerun, else offloaded."},
  };
}

std::vector<Parameter> graph_rows() {
  return {
      {.key = "graphs.mode",
       .fallback = string("off"),
       .allowed = {"off", "scopes", "step"},
       .help = "off: every op is launched by itself. scopes: one graph for each instance of a "
               "listed scope. step: the whole step in graphs."},
      {.key = "graphs.scopes",
       .fallback = std::vector<string>{},
       .allowed = {"attn", "mamba", "mlp", "moe_router", "moe", "layer"},
       .help = "Scopes that become graphs in mode scopes."},
      {.key = "graphs.copies",
       .fallback = string("beside"),
       .allowed = {"inside", "beside"},
       .help = "Where copies to and from the host are in mode scopes. inside: branches of the "
               "graphs. beside: on their own queues, tied to single ops of the graphs, which "
               "leaves no graph waiting for another one's copies. In mode step they are inside."},
      {.key = "graphs.warmup_steps",
       .fallback = 0,
       .unit = "steps",
       .range = between(0, kMostInt),
       .help = "Real steps that run eagerly before capture."},
      {.key = "graphs.max_packed_seqs",
       .fallback = std::vector<std::int64_t>{},
       .range = between(1, kMostInt),
       .help = "Capacities, in documents of a microbatch, for which graphs are captured; the "
               "smallest that fits is used. Empty: one, as data.max_documents says."},
  };
}

std::vector<Parameter> execution_rows() {
  return {
      {.key = "execution.backend",
       .fallback = string("auto"),
       .allowed = {"auto", "host", "cuda"},
       .help = "Where the program runs. auto: cuda if this build and machine have it."},
      {.key = "execution.delay_seed",
       .fallback = 0,
       .range = at_least(0),
       .help = "Seed of random delays of ops on the host backend, to find ordering mistakes. 0: "
               "no delays."},
      {.key = "execution.audit",
       .fallback = false,
       .help = "Check that each op touches only the buffers it declares. Slow."},
      {.key = "execution.ring_slots",
       .fallback = 3,
       .range = between(2, 64),
       .help = "Pinned slots k of inputs and metrics: the host runs at most k - 1 steps ahead."},
  };
}

}  // namespace

std::vector<Parameter> memory_parameters() {
  std::vector<Parameter> rows = parallel_rows();
  for (const auto& part : {offload_rows(), graph_rows(), execution_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace stowage::inputs::detail
