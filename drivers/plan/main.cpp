// stowage_plan: shows how the training step of a deck would be planned, without a device.

#include <fmt/core.h>

#include "drivers/plan/command.hpp"
#include "parallel/run_main.hpp"

int main(int argc, char** argv) {
  using namespace stowage;
  return parallel::run_main(argc, argv, [&](const parallel::Communicator& world) {
    const drivers::PlanCommand command = drivers::parse_plan_command(argc, argv);
    if (world.rank() != 0) return execution::Exit::valid;
    const drivers::PlanAnswer said = drivers::answer(command);
    fmt::print("{}", said.text);
    return said.exit;
  });
}
