#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "results/metric.hpp"
#include "results/provenance.hpp"
#include "results/value.hpp"
#include "results/verdict.hpp"

/// What rank 0 prints, as text ending in a newline. Comment lines begin with `#`; the verdict is
/// the last line and is made for `grep` (and for the regular expressions of ReFrame and Ramble).
namespace stowage::results {

/// "# stowage_train 0.1.0 (1a2b3c4)  np 2 on 1 host  seed 1234" and the facts given, aligned:
/// "#   model   ...". Each fact is a field whose value is text or a number.
std::string header_text(std::string_view program, const RunInfo& run,
                        std::span<const RankInfo> ranks, const Fields& facts);

/// One row per rank; for several ranks, how their GPUs and network cards are linked; then a warning
/// row for each difference between ranks and for each thing that could be better.
std::string ranks_text(std::span<const RankInfo> ranks);

/// The metrics as a table: value, 95 % interval of the median, samples behind it.
std::string metrics_text(std::span<const Metric> metrics);

/// The validation section: value, threshold, result of each check.
std::string validation_text(const Verdict& verdict);

/// "STOWAGE RESULT VALID  train/tokens_per_s=21874  units=1/s  ci95=21790..21941  uuid=…  file=…"
/// @param headline none if nothing was measured
std::string verdict_line(const Verdict& verdict, const std::optional<Metric>& headline,
                         std::string_view uuid, const std::filesystem::path& file);

}  // namespace stowage::results
