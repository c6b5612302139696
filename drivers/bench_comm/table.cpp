#include <fmt/format.h>

#include <algorithm>

#include "drivers/bench_comm/report.hpp"
#include "results/statistics.hpp"

namespace stowage::drivers {
namespace {

std::string measured(const CommRow* row) {
  if (row == nullptr) return fmt::format("{:>11}{:>9}{:>9}{:>8}", "-", "-", "-", "-");
  const double time_s = results::summarize(row->time_s).median;
  const double rate = 1e-9 * static_cast<double>(row->bytes) / time_s;
  return fmt::format("{:>11.2f}{:>9.3f}{:>9.3f}{:>8}", 1e6 * time_s, rate,
                     bus_factor(row->kind, row->ranks) * rate, row->wrong);
}

}  // namespace

std::string comm_table(const std::vector<CommRow>& rows) {
  const CommRow& first = rows.front();
  const std::string columns =
      fmt::format("{:>11}{:>9}{:>9}{:>8}", "time", "algbw", "busbw", "#wrong");
  const std::string units = fmt::format("{:>11}{:>9}{:>9}{:>8}", "us", "GB/s", "GB/s", "");
  std::string text = fmt::format(
      "# {} of group {}, {} ranks{}{}: medians on the slowest rank, GB = 1e9 B\n"
      "#   {:>59}  {:>37}  {:>37}\n"
      "#   {:<18}{:>12}{:>11}{:>7}{:>6}{:>5}  {}  {}\n"
      "#   {:<18}{:>12}{:>11}{:>7}{:>6}{:>5}  {}  {}\n",
      name(first.kind), first.group, first.ranks, first.graph ? ", in graphs" : "",
      first.overlapping.empty() ? "" : ", beside " + first.overlapping, "", "out of place",
      "in place", "library", "size", "count", "type", "redop", "root", columns, columns, "", "B",
      "elements", "", "", "", units, units);
  for (std::size_t i = 0; i < rows.size();) {
    const CommRow& row = rows[i];
    // The two ways of one library at one size follow each other.
    const bool both = i + 1 < rows.size() && rows[i + 1].in_place && !row.in_place &&
                      rows[i + 1].library == row.library && rows[i + 1].size == row.size;
    const CommRow* const apart = row.in_place ? nullptr : &row;
    const CommRow* const in_place = both ? &rows[i + 1] : row.in_place ? &row : nullptr;
    text +=
        fmt::format("#   {:<18}{:>12}{:>11}{:>7}{:>6}{:>5}  {}  {}\n", row.library, row.bytes,
                    row.count, "float", reduces(row.kind) ? "sum" : "none",
                    row.kind == Kind::broadcast ? kRoot : -1, measured(apart), measured(in_place));
    i += both ? 2 : 1;
  }
  return text;
}

}  // namespace stowage::drivers
