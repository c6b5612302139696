#include "execution/plan.hpp"

#include <fmt/core.h>

namespace stowage::execution {

std::string_view name(Region region) {
  switch (region) {
    case Region::persistent:
      return "persistent";
    case Region::transient:
      return "transient";
    case Region::host:
      return "host";
  }
  return "?";
}

std::vector<int> recorders(const Plan& plan) {
  std::vector<int> by_event(static_cast<std::size_t>(plan.events), -1);
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (const int event = plan.steps[i].records; event >= 0) by_event[event] = static_cast<int>(i);
  return by_event;
}

std::string describe(const Program& program, const Step& step) {
  const auto op_name = [&]() -> std::string {
    if (step.op < 0 || step.op >= static_cast<int>(program.ops().size())) return "?";
    return program.ops()[step.op].name;
  };
  switch (step.what) {
    case Step::What::run:
      return op_name();
    case Step::What::rerun:
      return fmt::format("rerun of {}", op_name());
    case Step::What::copy_out:
      return "copy to host";
    case Step::What::copy_in:
      return "copy from host";
    case Step::What::mark:
      return "mark";
  }
  return "?";
}

}  // namespace stowage::execution
