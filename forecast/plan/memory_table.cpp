#include "forecast/plan/memory_table.hpp"

#include <fmt/core.h>

#include "forecast/plan/tree_price.hpp"
#include "offload/summary.hpp"

namespace stowage::forecast {

using execution::Lifetime;

std::string memory_row(std::string_view what, std::size_t bytes) {
  return fmt::format("  {:<28} {:>14} B {:>10.3f} GiB\n", what, bytes, gib(bytes));
}

std::string memory_table(const TrainerPlan& run, const CheckpointMemory& saving) {
  std::string text = "# memory of one rank\n";
  const auto row = [&](std::string_view what, std::size_t bytes) {
    text += memory_row(what, bytes);
  };
  const execution::PersistentLayout& layout = run.layout();
  const auto& [recorded, choice, plan] = *run.training().back();
  row("parameters", layout.bytes(Lifetime::parameter));
  row("gradients", layout.bytes(Lifetime::gradient));
  row("optimizer states", layout.bytes(Lifetime::optimizer_state));
  row("transient", run.transient_bytes());
  row("  live at once, at most", plan.live_bytes);
  if (const std::size_t bytes = offload::bytes_in_gradient_memory(recorded.program, plan);
      bytes > 0)
    row("saved, in gradient memory", bytes);
  if (const auto price = tree_price(run); price && price->kept_bytes > 0)
    row("  partial gradients", static_cast<std::size_t>(price->kept_bytes));
  for (const auto& [what, bytes] : saving.device_rows()) row(what, bytes);
  row("all device memory", layout.bytes() + run.transient_bytes() + saving.device_bytes());
  row("pinned host memory", run.host_bytes() + saving.host_bytes());
  const auto at_home = [&](std::string_view what, Lifetime lifetime) {
    const std::size_t bytes = layout.bytes(lifetime, execution::Region::host);
    if (bytes > 0) row(what, bytes);
  };
  at_home("  parameters", Lifetime::parameter);
  at_home("  gradients", Lifetime::gradient);
  at_home("  optimizer states", Lifetime::optimizer_state);
  for (const auto& [what, bytes] : saving.host_rows()) row(what, bytes);
  return text;
}

}  // namespace stowage::forecast
