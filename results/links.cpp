#include "results/links.hpp"

#include <fmt/core.h>

#include <ranges>
#include <sstream>

namespace stowage::results {
namespace {

/// What stands between ", ".
std::vector<std::string> entries(std::string_view text) {
  std::vector<std::string> all;
  while (!text.empty()) {
    const std::size_t end = text.find(", ");
    all.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
  }
  return all;
}

void add_entry(std::string& text, const std::string& entry) {
  text += (text.empty() ? "" : ", ") + entry;
}

std::string or_dash(const std::string& word) { return word.empty() ? "-" : word; }
std::string or_empty(const std::string& word) { return word == "-" ? "" : word; }

}  // namespace

std::string to_text(std::span<const GpuLink> links) {
  std::string text;
  for (const GpuLink& link : links)
    if (!link.path.empty()) add_entry(text, fmt::format("{} {}", link.rank, link.path));
  return text;
}

std::string to_text(std::span<const Nic> nics) {
  std::string text;
  for (const Nic& nic : nics)
    add_entry(text,
              fmt::format("{} {} {} {} {}", nic.name, nic.pci, nic.fabric ? "fabric" : "ethernet",
                          or_dash(nic.numa_node), or_dash(nic.path)));
  return text;
}

std::vector<GpuLink> links_from_text(std::string_view text) {
  std::vector<GpuLink> links;
  for (const std::string& entry : entries(text)) {
    std::istringstream words(entry);
    GpuLink link;
    if (words >> link.rank >> std::ws && std::getline(words, link.path)) links.push_back(link);
  }
  return links;
}

std::vector<Nic> nics_from_text(std::string_view text) {
  std::vector<Nic> nics;
  for (const std::string& entry : entries(text)) {
    std::istringstream words(entry);
    Nic nic;
    std::string kind;
    if (!(words >> nic.name >> nic.pci >> kind >> nic.numa_node >> nic.path)) continue;
    nic.fabric = kind == "fabric";
    nic.numa_node = or_empty(nic.numa_node);
    nic.path = or_empty(nic.path);
    nics.push_back(std::move(nic));
  }
  return nics;
}

std::string ranges_text(std::span<const std::int64_t> numbers) {
  std::string text;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[begin]);
    if (end - begin > 1) text += fmt::format("-{}", numbers[end - 1]);
    begin = end;
  }
  return text;
}

}  // namespace stowage::results
