// The two forms of what stats.cpp finds.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "drivers/data/stats.hpp"

namespace stowage::drivers {
namespace {

std::string quantile_row(const std::string& name, const std::vector<std::int64_t>& quantiles) {
  return fmt::format("  {:<12}{:>10}{:>10}{:>10}{:>10}", name, quantiles[50], quantiles[90],
                     quantiles[99], quantiles[100]);
}

/// Proposed values of graphs.max_packed_seqs, and what each brings.
std::string proposals_text(const PackingStats& packing) {
  std::string text = fmt::format(
      "# capacities for {}: all microbatches of a step must fit, the others run op by op\n",
      packing.packing);
  for (const Proposal& proposal : packing.proposals) {
    text += fmt::format("  graphs.max_packed_seqs = [{}]{:>9.2f} % of steps replay a graph",
                        proposal.documents, 100 * proposal.share);
    const auto [held_s, above_s] = proposal.times;
    if (held_s > 0) text += fmt::format(", {:.4g} ms each", 1e3 * held_s);
    if (above_s > 0) text += fmt::format("; op by op {:.4g} ms and launches", 1e3 * above_s);
    text += "\n";
  }
  std::string all;
  for (const Proposal& proposal : packing.proposals)
    all += fmt::format("{}{}", all.empty() ? "" : ", ", proposal.documents);
  if (packing.proposals.size() > 1)
    text +=
        fmt::format("  graphs.max_packed_seqs = [{}]: every step the smallest that fits\n", all);
  return text;
}

}  // namespace

std::string stats_text(const DataStats& stats) {
  std::string text =
      fmt::format("# {}: {} documents, {} tokens\n", stats.source, stats.documents, stats.tokens);
  const auto head = [](const char* name) {
    return fmt::format("  {:<12}{:>10}{:>10}{:>10}{:>10}", name, "P50", "P90", "P99", "max");
  };
  text += "# tokens of a document\n" + head("") + "\n" + quantile_row("", stats.lengths) + "\n";
  text += "# documents of a microbatch, by packing\n" + head("packing") +
          fmt::format("{:>12}{:>10}{:>14}\n", "sequences", "filled", "MFLOP/token");
  for (const PackingStats& packing : stats.packings)
    if (packing.refused.empty())
      text += quantile_row(packing.packing, packing.documents_per_microbatch) +
              fmt::format("{:>12}{:>8.2f} %{:>14.4g}\n", packing.sequences,
                          100 * packing.efficiency, packing.flop_per_token / 1e6);
  for (const PackingStats& packing : stats.packings)
    text += fmt::format("# {}\n", packing.refused.empty()
                                      ? packing.summary
                                      : packing.packing + " is not possible: " + packing.refused);
  for (const PackingStats& packing : stats.packings)
    if (packing.packing == stats.chosen) text += proposals_text(packing);
  if (!stats.unpredicted.empty()) text += "# no times predicted: " + stats.unpredicted + "\n";
  return text;
}

std::string stats_json(const DataStats& stats) {
  nlohmann::ordered_json all = {{"schema", "stowage-documents"},
                                {"source", stats.source},
                                {"documents", stats.documents},
                                {"tokens", stats.tokens},
                                {"length_quantiles", stats.lengths},
                                {"packing", stats.chosen},
                                {"packings", nlohmann::ordered_json::array()}};
  for (const PackingStats& packing : stats.packings) {
    if (!packing.refused.empty()) {
      all["packings"].push_back({{"packing", packing.packing}, {"refused", packing.refused}});
      continue;
    }
    nlohmann::ordered_json proposals = nlohmann::ordered_json::array();
    for (const Proposal& proposal : packing.proposals) {
      proposals.push_back({{"documents", proposal.documents}, {"share", proposal.share}});
      const auto [held_s, above_s] = proposal.times;
      if (held_s > 0) proposals.back()["step_time_s"] = held_s;
      if (above_s > 0) proposals.back()["op_by_op_time_s"] = above_s;
    }
    all["packings"].push_back({{"packing", packing.packing},
                               {"efficiency", packing.efficiency},
                               {"sequences", packing.sequences},
                               {"split_documents", packing.split_documents},
                               {"dropped_documents", packing.dropped_documents},
                               {"dropped_tokens", packing.dropped_tokens},
                               {"flop_per_token", packing.flop_per_token},
                               {"microbatch_quantiles", packing.documents_per_microbatch},
                               {"max_packed_seqs", proposals}});
  }
  return all.dump(1) + "\n";
}

}  // namespace stowage::drivers
