#include "drivers/generate/generate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "drivers/generate/prompts.hpp"
#include "execution/error.hpp"
#include "forecast/plan/read_deck.hpp"
#include "forecast/plan/run_section.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "results/line_file.hpp"
#include "results/progress.hpp"
#include "run/checkpoints/checkpointing.hpp"
#include "run/command/output_files.hpp"
#include "run/generate/generator.hpp"
#include "run/machine/host_memory.hpp"
#include "run/machine/machine.hpp"
#include "run/state/weights.hpp"
#include "version/version.hpp"

namespace stowage::drivers {
namespace {

using execution::throw_usage;
using inputs::Deck;

void check(const GenerateOptions& options) {
  if (options.tokens < 1) throw_usage("--tokens {}: allowed: 1 or more", options.tokens);
  if (!(options.temperature >= 0) || std::isinf(options.temperature))
    throw_usage("--temperature {}: allowed: 0, which takes the likeliest token, or more",
                options.temperature);
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw_usage("--top-p {}: allowed: above 0 and at most 1", options.top_p);
  if (options.top_p < 1 && options.temperature == 0)
    throw_usage("--top-p {}: cuts what is drawn from: needs --temperature above 0", options.top_p);
  if (options.seed < 0) throw_usage("--seed {}: allowed: 0 or more", options.seed);
}

/// Tokens of the longest prompt and its continuation.
std::int64_t choose_window(const Deck& deck, const std::vector<Prompt>& prompts,
                           std::int64_t tokens) {
  const auto most = inputs::read(deck, &inputs::TrainConfig::seq_length);
  const auto longest = std::ranges::max_element(
      prompts, {}, [](const Prompt& prompt) { return prompt.tokens.size(); });
  const std::int64_t length = std::ssize(longest->tokens);
  if (length >= most || tokens > most - length)
    throw_usage(
        "{}: {} tokens and --tokens {} behind them do not fit into {}; allowed: {} "
        "together; a longer sequence may be given on the command line",
        longest->from, length, tokens, cite(deck, &inputs::TrainConfig::seq_length), most);
  return length + tokens;
}

/// With what --initial-weights says in the deck's words.
Deck read_deck(inputs::CommandLine command, bool initial_weights) {
  if (initial_weights)
    command.overrides.push_back(inputs::override_of(&forecast::CheckpointConfig::resume, "never"));
  return forecast::read_deck(command);
}

/// What the model's weights are, for people.
std::string weights_text(const run::Checkpointing& checkpoints, run::Weights which) {
  if (!checkpoints.resumed()) return "initial, which no training has changed";
  if (!checkpoints.from()) return checkpoints.found();
  return fmt::format("{}, of step {}{}", checkpoints.found(), checkpoints.first_step(),
                     which == run::Weights::ema ? ", averaged" : "");
}

std::string sampling_text(const GenerateOptions& options) {
  if (options.temperature == 0) return "the likeliest token each";
  return fmt::format("temperature {}, top-p {}, seed {}", options.temperature, options.top_p,
                     options.seed);
}

/// How long positions took, beside what memory allows. @param taken tokens, those of prompts too
std::string time_text(const Deck& deck, run::Trainer& trainer, double time_s,
                      std::int64_t positions, std::int64_t taken) {
  const double position_s = time_s / static_cast<double>(positions);
  std::string text = fmt::format(
      "# {:.2f} s, {:.{}f} ms a position, {:.1f} tokens/s with those of prompts\n", time_s,
      1e3 * position_s, position_s < 0.01 ? 3 : 1, static_cast<double>(taken) / time_s);
  const double bytes = trainer.plan().decode()->recorded.program.cost().bytes;
  text += fmt::format("# a position moves {:.4g} GB with full caches: {:.4g} GB/s", bytes / 1e9,
                      bytes / position_s / 1e9);
  const double copy = inputs::read(deck, &forecast::MachineConfig::device_copy_bytes_per_s);
  if (copy > 0)
    text +=
        fmt::format(", {:.1f} % of {:.4g} GB/s, the rate of {}", 100 * bytes / position_s / copy,
                    copy / 1e9, inputs::key(&forecast::MachineConfig::device_copy_bytes_per_s));
  return text + "\n";
}

std::string json_line(const Prompt& prompt, const run::Continuation& made, TextForm form) {
  return nlohmann::ordered_json{{"prompt", prompt.text},
                                {"prompt_tokens", prompt.tokens},
                                {"text", text_of(made.tokens, form)},
                                {"tokens", made.tokens},
                                {"log_probabilities", made.log_probabilities}}
      .dump();
}

std::unique_ptr<run::Trainer> make_trainer(const Deck& deck, run::Machine& machine,
                                           const layers::DecodeShape& shape) {
  auto plan = std::make_unique<forecast::TrainerPlan>(
      run::generation_options(deck, shape, machine.rank_order()));
  plan->require_proven();
  machine.require_memory(*plan);
  const std::size_t device_bytes = plan->layout().bytes() + plan->transient_bytes();
  run::require_host_memory(plan->host_bytes() + (machine.has_gpu() ? 0 : device_bytes), 0);
  return std::make_unique<run::Trainer>(std::move(plan), machine.backend(),
                                        [&](execution::Queue& queue) { machine.prepare(queue); });
}

}  // namespace

void generate(const parallel::Communicator& world, const inputs::CommandLine& command,
              const GenerateOptions& options) {
  if (world.size() != 1)
    throw_usage("stowage_generate is one process; {} were started", world.size());
  check(options);
  const run::Weights which = run::weights_called(options.weights);
  const Deck deck = read_deck(command, options.initial_weights);
  if (command.print_config) {
    fmt::print("{}", deck.text());
    return;
  }
  const TextForm form = text_form(deck);
  const std::vector<Prompt> prompts =
      read_prompts(options.prompts, options.prompt_file, form,
                   inputs::read(deck, &layers::ModelConfig::vocabulary));
  const std::int64_t window = choose_window(deck, prompts, options.tokens);
  const run::Checkpointing checkpoints(deck, world, {}, run::Checkpointing::Use::evaluate);
  if (!checkpoints.resumed() && !options.initial_weights)
    throw_usage(
        "{}: there is no checkpoint; name its folder, or say checkpoint.resume: a "
        "checkpoint or hf:FOLDER; --initial-weights takes untrained ones",
        cite(deck, &forecast::CheckpointConfig::directory));
  results::LineFile json;
  if (!command.json.empty()) {
    std::vector<results::NamedPath> read = run::deck_files(deck, command);
    if (!options.prompt_file.empty()) read.push_back({"--prompt-file", options.prompt_file});
    results::require_apart({{{"--json", command.json}}}, read);
    json = results::LineFile(command.json, results::FileKind::json_lines, false);
  }
  run::Machine machine(deck, world);
  const auto trainer = make_trainer(deck, machine, {std::ssize(prompts), window});
  if (which == run::Weights::ema)
    checkpoints.load_averages(*trainer);
  else
    (void)checkpoints.resume(*trainer, nullptr);
  fmt::print(
      "# stowage_generate {} ({})\n#   weights   {}\n#   backend   {}\n#   dtype     {}\n"
      "#   window    {} tokens\n#   kept      {} bytes of states, caches and logits\n#   tokens    "
      "{}\n"
      "#   choice    {}\n",
      version::build_info().release, version::build_info().git_describe,
      weights_text(checkpoints, which), machine.backend().name(),
      execution::name(inputs::read(deck, &inputs::TrainConfig::dtype)), window,
      trainer->plan().layout().bytes(execution::Lifetime::sequence_state),
      form == TextForm::bytes ? "bytes of UTF-8 text" : "ids of a tokenizer that is not known here",
      sampling_text(options));
  for (const std::string& changed : checkpoints.changes()) fmt::print("{}\n", changed);
  std::fflush(stdout);
  std::vector<run::Tokens> sequences;
  for (const Prompt& prompt : prompts) sequences.push_back(prompt.tokens);
  const double start_s = results::steady_seconds();
  const std::vector<run::Continuation> made =
      run::Generator(*trainer).generate(sequences, options.tokens,
                                        {.temperature = options.temperature,
                                         .top_p = options.top_p,
                                         .seed = static_cast<std::uint64_t>(options.seed)});
  const double time_s = results::steady_seconds() - start_s;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    run::Tokens all = prompts[i].tokens;
    all.insert(all.end(), made[i].tokens.begin(), made[i].tokens.end());
    fmt::print("# {}: {} tokens, and {} behind them\n{}\n", prompts[i].from,
               prompts[i].tokens.size(), options.tokens, text_of(all, form));
    json.write(json_line(prompts[i], made[i], form));
  }
  // The last token of a continuation is not taken any more.
  std::int64_t taken = 0;
  for (const Prompt& prompt : prompts) taken += std::ssize(prompt.tokens) + options.tokens - 1;
  fmt::print("{}", time_text(deck, *trainer, time_s, window - 1, taken));
  if (!json.complete())
    throw execution::Error(execution::Exit::runtime,
                           fmt::format("--json {}: is not complete", command.json));
}

}  // namespace stowage::drivers
