#include "run/record/source_losses.hpp"

namespace stowage::run {
namespace {

std::vector<results::SeriesColumn> columns(const inputs::Data& data) {
  std::vector<results::SeriesColumn> all;
  for (const inputs::Data::Source& source : data.sources)
    all.push_back({source.name, "nat", "its training loss per token, since the step before"});
  return all;
}

}  // namespace

SourceLosses::SourceLosses(results::ResultSet& set, const inputs::Data& data)
    : sums_(data.sources.size()), series_(set.series("source_loss", "step", columns(data))) {
  for (const inputs::Data::Source& source : data.sources) names_.push_back(source.name);
}

void SourceLosses::add(const StepReport& report) {
  if (!report.ok) return;
  for (std::size_t source = 0; source < sums_.size(); ++source)
    for (const std::size_t i : {0u, 1u}) sums_[source][i] += report.source_losses[source][i];
}

results::Fields SourceLosses::keep(std::int64_t step) {
  std::vector<double> losses;
  results::Fields fields;
  for (std::size_t source = 0; source < sums_.size(); ++source) {
    const auto& [sum, targets] = sums_[source];
    losses.push_back(sum / targets);
    fields.push_back({"loss." + names_[source], losses.back()});
    fields.push_back({"targets." + names_[source], targets});
  }
  series_.append(step, losses);
  sums_.assign(sums_.size(), {});
  return fields;
}

}  // namespace stowage::run
