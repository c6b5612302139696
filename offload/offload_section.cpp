// Rows of [offload], [recompute] and [graphs].
#include "offload/offload_section.hpp"

#include <algorithm>

#include "inputs/deck/layer_kinds.hpp"

namespace stowage::inputs {

using offload::GraphConfig;
using offload::GraphOptions;
using offload::OffloadConfig;
using offload::Policy;

namespace {

std::vector<std::string_view> module_names() {
  std::vector<std::string_view> names;
  for (const Module& module : saved_modules()) names.push_back(module.name);
  return names;
}

}  // namespace

template <>
std::vector<Row<OffloadConfig>> rows<OffloadConfig>() {
  return {
      row(&OffloadConfig::kind,
          {.key = "offload.policy",
           .help =
               "none: everything saved stays on the device. manual: what the keys below say. auto: "
               "the planner chooses within the budgets."},
          {{"none", Policy::Kind::none},
           {"manual", Policy::Kind::manual},
           {"auto", Policy::Kind::automatic}}),
      row(&OffloadConfig::modules, {.key = "offload.modules",
                                    .allowed = module_names(),
                                    .help = "Saved tensors that may leave the device (manual)."}),
      row(&OffloadConfig::fraction,
          {.key = "offload.fraction",
           .range = between(0, 1),
           .help = "Part of the bytes of each module name that leaves: whole tensors, earliest in "
                   "forward first, never above."}),
      row(&OffloadConfig::min_tensor_bytes, {.key = "offload.min_tensor_bytes",
                                             .unit = "B",
                                             .range = between(0, kMostBytes),
                                             .help = "Smaller buffers stay."}),
      row(&OffloadConfig::delta_bytes,
          {.key = "offload.delta_bytes_across_pp_ranks",
           .unit = "B",
           .range = between(0, kMostBytes / kMostCount),
           .help = "Pipeline rank p keeps p times as many bytes, earliest in backward first."}),
      row(&OffloadConfig::max_inflight,
          {.key = "offload.max_inflight",
           .range = between(-1, kMostInt),
           .help =
               "Copies to the host in flight per module name before compute waits for the oldest. "
               "0: each is joined at once. -1: no cap."}),
      row(&OffloadConfig::max_inflight_bytes_d2h,
          {.key = "offload.max_inflight_bytes_d2h",
           .unit = "B",
           .range = between(-1, kMostBytes),
           .help = "Bytes in flight to the host. -1: no cap."}),
      row(&OffloadConfig::max_inflight_bytes_h2d,
          {.key = "offload.max_inflight_bytes_h2d",
           .unit = "B",
           .range = between(-1, kMostBytes),
           .help = "Bytes in flight from the host. -1: no cap."}),
      row(&OffloadConfig::delay_until_graph,
          {.key = "offload.delay_until_graph",
           .help =
               "The copies of a graph segment start right after the next launch, the last ones at "
               "the end of their microbatch. With graphs.mode = \"scopes\"."}),
      row(&OffloadConfig::keep_exposed,
          {.key = "offload.keep_exposed",
           .help = "What could not come back in time stays on the device."}),
      row(&OffloadConfig::device_budget_bytes,
          {.key = "offload.device_budget_bytes",
           .unit = "B",
           .range = between(0, kMostBytes),
           .help =
               "Device memory that auto may use, with the copy that checkpoint.copy = \"device\" "
               "asks for, and larger classes of room for rows of experts. 0: offload exactly what "
               "costs nothing."}),
      row(&OffloadConfig::reuse_gradient_memory,
          {.key = "offload.reuse_gradient_memory",
           .help = "auto with a budget may keep tensors, at no cost, in the memory of gradients "
                   "that are "
                   "written after their last use."}),
      row(&OffloadConfig::host_budget_bytes, {.key = "offload.host_budget_bytes",
                                              .unit = "B",
                                              .range = between(-1, kMostBytes),
                                              .help = "Pinned host memory per rank. -1: no cap."}),
      row(&OffloadConfig::states,
          {.key = "offload.states",
           .help =
               "States that have their home in pinned host memory and come to the device for each "
               "op that uses them. Of the optimizer: none, all, master, ema (optim.ema_decay), "
               "moments (all but these two) or a state's own name, such as adam_m. auto: as few of "
               "all as let what is saved stay within offload.device_budget_bytes; if none are "
               "left, the policy sees to the rest. And gradients and parameters, which each "
               "microbatch uses: auto takes them where nothing else fits."}),
      row(&OffloadConfig::states_fraction,
          {.key = "offload.states_fraction",
           .range = between(0, 1),
           .help = "Part of their elements that has its home there: whole buckets "
                   "(parallel.bucket_elements), never above. auto takes no more."}),
      row(&OffloadConfig::recompute,
          {.key = "recompute.modules",
           .allowed = module_names(),
           .help =
               "Saved tensors that are computed again in backward: all but the _norm names, from "
               "which reruns start. Listed in both tables: recomputed where the producers can be "
               "rerun, else offloaded."}),
  };
}

template <>
std::vector<Row<GraphConfig>> rows<GraphConfig>() {
  return {
      row(&GraphConfig::mode,
          {.key = "graphs.mode",
           .help = "off: every op is launched by itself. scopes: one graph for each instance of a "
                   "listed scope. step: the whole step in graphs."},
          {{"off", GraphOptions::Mode::off},
           {"scopes", GraphOptions::Mode::scopes},
           {"step", GraphOptions::Mode::step}}),
      row(&GraphConfig::scopes, {.key = "graphs.scopes",
                                 .allowed = graph_scopes(),
                                 .help = "Scopes that become graphs in mode scopes."}),
      row(&GraphConfig::copies,
          {.key = "graphs.copies",
           .help =
               "Where copies to and from the host are in mode scopes. inside: branches of the "
               "graphs. beside: on their own queues, tied to single ops of the graphs, which "
               "leaves no graph waiting for another one's copies. In mode step they are inside."},
          {{"inside", GraphOptions::Copies::inside},
           {"beside", GraphOptions::Copies::overlapping}}),
      row(&GraphConfig::warmup_steps, {.key = "graphs.warmup_steps",
                                       .unit = "steps",
                                       .range = between(0, kMostInt),
                                       .help = "Real steps that run eagerly before capture."}),
  };
}

}  // namespace stowage::inputs

namespace stowage::offload {

using execution::throw_usage;
using inputs::Deck;
using inputs::key;

namespace {

/// The names of a list with the modules that each stands for.
std::vector<ModuleName> module_names(const std::vector<std::string>& words) {
  std::vector<ModuleName> names;
  for (const std::string& word : words) {
    ModuleName& name = names.emplace_back(ModuleName{word, {}});
    for (const inputs::Module& module : inputs::saved_modules())
      if (module.name == word) name.modules.assign(module.parts.begin(), module.parts.end());
    if (name.modules.empty()) name.modules = {word};
  }
  return names;
}

}  // namespace

Policy OffloadConfig::policy(int stage) const {
  Policy policy;
  policy.kind = kind;
  policy.offload = module_names(modules);
  policy.recompute = module_names(recompute);
  policy.fraction = fraction;
  policy.min_tensor_bytes = static_cast<std::size_t>(min_tensor_bytes);
  policy.keep_bytes = stage * delta_bytes;
  policy.caps = {.max_inflight = max_inflight,
                 .d2h_bytes = max_inflight_bytes_d2h,
                 .h2d_bytes = max_inflight_bytes_h2d};
  policy.keep_exposed = keep_exposed;
  policy.device_budget_bytes = device_budget_bytes;
  policy.reuse_gradient_memory = reuse_gradient_memory;
  policy.host_budget_bytes = host_budget_bytes;
  return policy;
}

void check(const OffloadConfig& offload, const Deck& deck) {
  const bool says_auto = std::ranges::find(offload.states, "auto") != offload.states.end();
  if (says_auto && !offload.automatic_states())
    throw_usage("{}: auto chooses among all states: it stands alone",
                cite(deck, &OffloadConfig::states));
  if (std::ranges::find(offload.states, "none") != offload.states.end() &&
      offload.states.size() > 1)
    throw_usage("{}: none stands alone", cite(deck, &OffloadConfig::states));
  if (says_auto && offload.device_budget_bytes == 0)
    throw_usage("{} needs {}: what does not fit leaves", cite(deck, &OffloadConfig::states),
                key(&OffloadConfig::device_budget_bytes));
  for (const inputs::Module& module : inputs::saved_modules()) {
    if (!module.again_from.empty() || !module.parts.empty()) continue;
    if (std::ranges::find(offload.recompute, module.name) == offload.recompute.end()) continue;
    throw_usage("{}: {} cannot be computed again: it is where reruns end",
                cite(deck, &OffloadConfig::recompute), module.name);
  }
  if (offload.delay_until_graph && read(deck, &GraphConfig::mode) != GraphOptions::Mode::scopes)
    throw_usage("{} needs {} = \"scopes\": copies wait for the next graph",
                cite(deck, &OffloadConfig::delay_until_graph), key(&GraphConfig::mode));
  if (offload.kind == Policy::Kind::manual && offload.modules.empty())
    throw_usage("{} needs at least one of {}", cite(deck, &OffloadConfig::kind),
                key(&OffloadConfig::modules));
}

void check(const GraphConfig& graphs, const Deck& deck) {
  if (graphs.mode == GraphOptions::Mode::scopes && graphs.scopes.empty())
    throw_usage("{} needs at least one of {}", cite(deck, &GraphConfig::mode),
                key(&GraphConfig::scopes));
}

}  // namespace stowage::offload
