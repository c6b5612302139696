#include "forecast/plan/memory_fit.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "forecast/plan/memory_table.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/rates/machine_section.hpp"

namespace stowage::forecast {
namespace {

constexpr double MachineConfig::*kRates[] = {&MachineConfig::matmul_flops_per_s,
                                             &MachineConfig::device_copy_bytes_per_s};

std::string machine_name(const inputs::Deck& deck) {
  const auto name = inputs::read(deck, &MachineConfig::name);
  return name.empty() ? "the device" : name;
}

}  // namespace

bool knows_rates(const inputs::Deck& deck) {
  for (const auto rate : kRates)
    if (inputs::read(deck, rate) <= 0) return false;
  return true;
}

void require_rates(const inputs::Deck& deck, std::string_view option) {
  for (const auto rate : kRates)
    if (inputs::read(deck, rate) <= 0)
      execution::throw_usage(
          "{}: {}: a time needs the machine's rates: --machine NAME names one of inputs/machines/, "
          "--ceilings RESULT what stowage_ceilings measured",
          option, inputs::cite(deck, rate));
}

std::string milliseconds(bool known, double time_s) {
  return known ? fmt::format("{:.3f}", 1e3 * time_s) : "-";
}

MemoryFit memory_fit(const inputs::Deck& deck, std::size_t device_bytes) {
  const auto memory = inputs::read(deck, &MachineConfig::device_memory_bytes);
  if (memory == 0) return {};
  const std::int64_t usable = usable_memory(deck, inputs::key(&MachineConfig::device_memory_bytes));
  const auto kept = static_cast<std::size_t>(memory - usable);
  const bool fits = device_bytes <= static_cast<std::size_t>(usable);
  std::string text = fmt::format(
      "# {}: {:.1f} GiB, {} has {:.1f} GiB, of which {:.0f} GiB are left to drivers and "
      "libraries\n",
      fits ? "fits" : "does not fit", gib(device_bytes), machine_name(deck),
      gib(static_cast<std::size_t>(memory)), gib(kept));
  return {fits, std::move(text)};
}

}  // namespace stowage::forecast
