#include "run/machine/gpu_agreement.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace stowage::run {
namespace {

/// One rank with a GPU and one without, each at its place; the larger lack first: ranks that found
/// none stand out before those that share one.
std::string mixed(std::span<const GpuFinding> by_rank) {
  const auto at = [&](auto has, bool wanted) {
    return std::ranges::find_if(by_rank, [&](const GpuFinding& f) { return has(f) == wanted; });
  };
  const auto sentence = [&](auto has, const char* what) -> std::string {
    const auto with = at(has, true), without = at(has, false);
    if (with == by_rank.end() || without == by_rank.end()) return {};
    return fmt::format(
        "execution.backend = \"auto\": rank {} on host {} has {}, rank {} on host {} has none "
        "({}); give every rank one, or set execution.backend = \"host\"",
        with - by_rank.begin(), with->host, what, without - by_rank.begin(), without->host,
        without->problem);
  };
  const std::string found = sentence([](const GpuFinding& f) { return f.opened; }, "a GPU");
  return found.empty()
             ? sentence([](const GpuFinding& f) { return f.problem.empty(); }, "a GPU of its own")
             : found;
}

}  // namespace

GpuAgreement agree_on_gpus(std::span<const GpuFinding> by_rank, bool required) {
  GpuAgreement agreement;
  const auto has_own = [](const GpuFinding& finding) { return finding.problem.empty(); };
  const auto lacking = std::ranges::find_if_not(by_rank, has_own);
  if (lacking == by_rank.end()) {
    agreement.on_gpus = true;
  } else if (required && std::ranges::none_of(by_rank, has_own)) {
    agreement.refusal = lacking->problem;
  } else if (required) {
    agreement.refusal = fmt::format("rank {} on host {}: {}", lacking - by_rank.begin(),
                                    lacking->host, lacking->problem);
  } else if (agreement.refusal = mixed(by_rank); agreement.refusal.empty()) {
    agreement.warning = fmt::format(
        "execution.backend = \"auto\": computing on the host, since no rank has a GPU of its own "
        "({})",
        lacking->problem);
  }
  return agreement;
}

std::string to_text(const GpuFinding& finding) {
  return fmt::format("{}\n{}\n{}", finding.host, finding.opened ? 1 : 0, finding.problem);
}

GpuFinding finding_from_text(const std::string& text) {
  const std::size_t host = text.find('\n');
  return {.host = text.substr(0, host),
          .opened = text[host + 1] == '1',
          .problem = text.substr(host + 3)};
}

}  // namespace stowage::run
