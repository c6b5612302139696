// stowage_generate: continues texts by a trained model.

#include <fmt/core.h>

#include "drivers/generate/generate.hpp"
#include "parallel/run_main.hpp"
#include "version/version.hpp"

int main(int argc, char** argv) {
  using namespace stowage;
  return parallel::run_main(argc, argv, [&](const parallel::Communicator& world) {
    drivers::GenerateOptions options;
    const inputs::CommandLine command = inputs::parse_command_line(
        argc, argv,
        {.name = "stowage_generate",
         .summary = "Continues texts by a deck's model, with the weights that training has saved.",
         .version = fmt::format("{} ({})", version::build_info().release,
                                version::build_info().git_describe),
         .options = {{"--prompt", "What to continue; again for each text", &options.prompts,
                      "TEXT"},
                     {"--prompt-file", "The same, one a line", &options.prompt_file, "FILE"},
                     {"--tokens", "How many tokens each is continued by (64)", &options.tokens},
                     {"--temperature", "Draw tokens, logits divided by it (0: the likeliest token)",
                      &options.temperature},
                     {"--top-p", "Draw from the likeliest tokens with so much probability (1)",
                      &options.top_p},
                     {"--seed", "Of what is drawn (0)", &options.seed},
                     {"--weights",
                      "trained, or ema: averages that optim.ema_decay has kept (trained)",
                      &options.weights},
                     {"--initial-weights", "Use weights that no training has changed",
                      &options.initial_weights}},
         .json_help = "Write tokens and log-probabilities as JSON lines, too",
         .without = {"--out", "--dry-run", "--quiet"}});
    if (!command.print_and_exit.empty()) {
      if (world.rank() == 0) fmt::print("{}", command.print_and_exit);
      return execution::Exit::valid;
    }
    drivers::generate(world, command, options);
    return execution::Exit::valid;
  });
}
