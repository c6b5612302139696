#include "forecast/rates/machine_facts.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "execution/error.hpp"
#include "forecast/rates/machine_links.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/deck/words.hpp"

namespace stowage::forecast {
namespace {

using inputs::Deck;
using Texts = std::vector<std::string>;
using Lines = Texts MachineConfig::*;

constexpr const char* kKinds[] = {"all_gather", "all_reduce", "all_to_all",
                                  "broadcast",  "exchange",   "reduce_scatter"};

/// A number of a deck and the fact that it is.
using Number = std::pair<double MachineConfig::*, double*>;

std::vector<Number> numbers(MachineFacts& facts) {
  return {{&MachineConfig::matmul_flops_per_s, &facts.matmul_flops_per_s},
          {&MachineConfig::device_copy_bytes_per_s, &facts.device_copy_bytes_per_s},
          {&MachineConfig::d2h_bytes_per_s, &facts.d2h_bytes_per_s},
          {&MachineConfig::h2d_bytes_per_s, &facts.h2d_bytes_per_s},
          {&MachineConfig::duplex_bytes_per_s, &facts.duplex_bytes_per_s},
          {&MachineConfig::copy_latency_s, &facts.copy_latency_s},
          {&MachineConfig::d2h_slowdown_arithmetic, &facts.d2h_slowdown.arithmetic},
          {&MachineConfig::d2h_slowdown_memory, &facts.d2h_slowdown.memory},
          {&MachineConfig::h2d_slowdown_arithmetic, &facts.h2d_slowdown.arithmetic},
          {&MachineConfig::h2d_slowdown_memory, &facts.h2d_slowdown.memory},
          {&MachineConfig::allreduce_bytes_per_s, &facts.allreduce_bytes_per_s},
          {&MachineConfig::network_latency_s, &facts.network_latency_s},
          {&MachineConfig::network_bytes_per_s, &facts.network_bytes_per_s},
          {&MachineConfig::spine_bytes_per_s, &facts.spine_bytes_per_s}};
}

/// Names of groups, or any.
std::string groups() {
  std::string names = "any";
  for (std::size_t which = 0; which < parallel::kGroups; ++which)
    names += fmt::format(", {}", parallel::name(static_cast<parallel::Group>(which)));
  return names;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_group(const std::string& word) {
  return word == "any" || parallel::group_named(word).has_value();
}

/// Takes ":4" off the word "any:4"; nothing if it is no number of ranks.
std::optional<int> cut_ranks(std::string& word) {
  const std::size_t at = word.find(':');
  if (at == std::string::npos) return 0;
  const std::string ranks = word.substr(at + 1);
  word.resize(at);
  if (ranks.empty() || ranks.size() > 9 || !std::ranges::all_of(ranks, is_digit)) return {};
  const int count = std::stoi(ranks);
  return count >= 2 ? std::optional<int>(count) : std::nullopt;
}

/// The words of a line, between blanks.
Texts words_of(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  Texts words;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    if (line.empty()) return words;
    const std::size_t end = std::min(line.find_first_of(kBlanks), line.size());
    words.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

GroupLink read_link(const Deck& deck, Lines key, const std::string& given) {
  const Texts words = words_of(given);
  const std::optional<double> latency_s =
      words.size() < 3 ? std::nullopt : inputs::number(words.end()[-2]);
  const std::optional<double> bytes_per_s =
      words.size() < 3 ? std::nullopt : inputs::number(words.end()[-1]);
  if (words.size() > 4 || !latency_s || !bytes_per_s || !(*latency_s >= 0 && *bytes_per_s > 0))
    execution::throw_usage(
        "{}: '{}' is no link; allowed: a group, a kind of collective or none, seconds >= 0 and "
        "bytes per second > 0, as \"data 1.2e-5 3.4e11\" or \"any:4 all_reduce 6e-5 1.7e11\"",
        cite(deck, key), given);
  GroupLink line;
  line.group = words.front();
  line.link = {*latency_s, *bytes_per_s};
  const std::optional<int> ranks = cut_ranks(line.group);
  if (!ranks)
    execution::throw_usage(
        "{}: '{}': behind the group's name stands how many ranks it has, two or more, as \"any:4\"",
        cite(deck, key), given);
  line.ranks = *ranks;
  if (!is_group(line.group))
    execution::throw_usage("{}: '{}' names no group; there are {}", cite(deck, key), given,
                           groups());
  if (words.size() == 4) {
    line.kind = words[1];
    if (std::ranges::find(kKinds, line.kind) == std::end(kKinds))
      execution::throw_usage("{}: '{}' names no kind of collective; there are {}", cite(deck, key),
                             given, fmt::join(kKinds, ", "));
  }
  return line;
}

std::vector<GroupLink> read_links(const Deck& deck, Lines key) {
  std::vector<GroupLink> lines;
  for (const std::string& given : read(deck, key)) lines.push_back(read_link(deck, key, given));
  return lines;
}

std::map<std::string, double, std::less<>> read_efficiency(const Deck& deck) {
  std::map<std::string, double, std::less<>> parts;
  for (const std::string& given : read(deck, &MachineConfig::op_efficiency)) {
    const Texts words = words_of(given);
    const std::optional<double> value =
        words.size() == 2 ? inputs::number(words.back()) : std::nullopt;
    if (!value || *value <= 0)
      execution::throw_usage(
          "{}: '{}' is no efficiency; allowed: a kind of op and a number > 0, as "
          "\"mamba/scan 0.5\"",
          cite(deck, &MachineConfig::op_efficiency), given);
    if (!parts.emplace(words.front(), *value).second)
      execution::throw_usage("{}: '{}' is given twice", cite(deck, &MachineConfig::op_efficiency),
                             words.front());
  }
  return parts;
}

/// Links as read_link() takes them.
Texts lines_of(const std::vector<GroupLink>& links, int digits) {
  Texts lines;
  for (const GroupLink& line : links)
    lines.push_back(fmt::format("{}{}{}{} {:.{}e} {:.{}e}", line.group,
                                line.ranks == 0 ? "" : fmt::format(":{}", line.ranks),
                                line.kind.empty() ? "" : " ", line.kind, line.link.latency_s,
                                digits - 1, line.link.bytes_per_s, digits - 1));
  return lines;
}

}  // namespace

MachineFacts machine_facts(const Deck& deck) {
  MachineFacts facts;
  const auto machine = inputs::read<MachineConfig>(deck);
  facts.name = machine.name;
  for (const auto& [member, number] : numbers(facts)) *number = machine.*member;
  facts.ranks_per_node = machine.ranks_per_node;
  facts.ranks_per_node_cited = cite(deck, &MachineConfig::ranks_per_node);
  facts.ranks_per_switch = machine.ranks_per_switch;
  facts.links = read_links(deck, &MachineConfig::links);
  facts.links_with_compute = read_links(deck, &MachineConfig::links_beside);
  facts.op_efficiency = read_efficiency(deck);
  return facts;
}

double round_digits(double value, int digits) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value,
                                          std::chars_format::scientific, digits - 1);
  STOWAGE_ASSERT(error == std::errc(), "{} digits do not fit", digits);
  double rounded = value;
  std::from_chars(text.data(), end, rounded);
  return rounded;
}

Deck::Settings machine_settings(const MachineFacts& facts) {
  Deck::Settings settings;
  MachineFacts copy = facts;
  for (const auto& [member, number] : numbers(copy))
    if (*number > 0) settings.emplace(inputs::key(member), *number);
  const auto add = [&](Lines member, Texts lines) {
    if (!lines.empty()) settings.emplace(inputs::key(member), std::move(lines));
  };
  add(&MachineConfig::links, lines_of(facts.links, kRateDigits));
  add(&MachineConfig::links_beside, lines_of(facts.links_with_compute, kFitDigits));
  Texts parts;
  for (const auto& [kind, part] : facts.op_efficiency)
    parts.push_back(fmt::format("{} {:.{}g}", kind, part, kEfficiencyDigits));
  add(&MachineConfig::op_efficiency, std::move(parts));
  return settings;
}

offload::Rates machine_rates(const MachineFacts& facts, const parallel::GridShape& shape) {
  offload::Rates rates;
  const auto set = [](double& rate, double known) {
    if (known > 0) rate = known;
  };
  set(rates.flops_per_s, facts.matmul_flops_per_s);
  set(rates.device_bytes_per_s, facts.device_copy_bytes_per_s);
  set(rates.d2h_bytes_per_s, facts.d2h_bytes_per_s);
  set(rates.h2d_bytes_per_s, facts.h2d_bytes_per_s);
  set(rates.duplex_bytes_per_s, facts.duplex_bytes_per_s);
  set(rates.link.bytes_per_s, facts.allreduce_bytes_per_s);
  rates.links = machine_links(facts, shape, rates.link);
  rates.links_with_compute = machine_links_with_compute(facts, shape);
  rates.efficiency = facts.op_efficiency;
  if (!facts.name.empty()) rates.copy_latency_s = facts.copy_latency_s;
  set(rates.d2h_slowdown.arithmetic, facts.d2h_slowdown.arithmetic);
  set(rates.d2h_slowdown.memory, facts.d2h_slowdown.memory);
  set(rates.h2d_slowdown.arithmetic, facts.h2d_slowdown.arithmetic);
  set(rates.h2d_slowdown.memory, facts.h2d_slowdown.memory);
  return rates;
}

}  // namespace stowage::forecast
