// stowage_data: makes, checks and describes the token files that training reads.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "drivers/data/check.hpp"
#include "drivers/data/documents.hpp"
#include "drivers/data/prepare.hpp"
#include "drivers/data/stats.hpp"
#include "execution/error.hpp"
#include "inputs/deck/command_line.hpp"
#include "results/part_file.hpp"
#include "run/command/subcommands.hpp"
#include "version/version.hpp"

namespace stowage::drivers {
namespace {

constexpr const char* kHelp =
    "Makes, checks and describes token files.\n"
    "Usage: stowage_data COMMAND [OPTIONS]\n\n"
    "  prepare FILE.jsonl... --out PREFIX   JSON lines to Megatron's .bin and .idx, and a loss "
    "mask\n"
    "  check FILE                           reads every token and mask byte of a data file\n"
    "  stats DECK.toml [section.key=value ...]\n"
    "                                       lengths, packings and capacities of a deck's data\n"
    "  documents DECK.toml | --from SET.h5 [--first-step N] [--steps M]\n"
    "                                       lengths of the documents of a deck's steps\n\n"
    "stowage_data COMMAND --help lists the options of a command.\n";

void run_prepare(int argc, const char* const* argv) {
  PrepareOptions options;
  CLI::App app("JSON lines to Megatron's indexed data set, a document a line",
               "stowage_data prepare");
  app.add_option("inputs", options.inputs,
                 "JSON lines with \"text\", \"prompt\" and \"response\", or \"turns\"; -: standard "
                 "input")
      ->type_name("FILE")
      ->required();
  app.add_option("--out", options.prefix,
                 "Writes PREFIX.bin, PREFIX.idx and, of pairs and turns, PREFIX.mask")
      ->type_name("PREFIX")
      ->required();
  app.add_option("--tokenizer", options.tokenizer,
                 "bytes: of strings, a token a byte (default); ids: the lines hold lists of tokens")
      ->type_name("KIND");
  app.add_option("--vocab-size", options.vocab_size, "Tokens are below this (default 256)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  app.add_option("--append-token", options.append_token,
                 "Token behind each document (default none)")
      ->check(CLI::NonNegativeNumber);
  if (run::parsed(app, argc, argv)) fmt::print("{}", prepare(options));
}

/// The format of a file. @throws Error (exit 2) for another word
inputs::SourceKind file_kind(const std::string& word) {
  using inputs::SourceKind;
  static const std::map<std::string, SourceKind> kinds = {{"auto", SourceKind::automatic},
                                                          {"text", SourceKind::text},
                                                          {"megatron", SourceKind::megatron},
                                                          {"llmc", SourceKind::llmc}};
  const auto found = kinds.find(word);
  if (found == kinds.end())
    execution::throw_usage("--source {}: allowed: {}", word,
                           fmt::join(kinds | std::views::keys, ", "));
  return found->second;
}

void run_check(int argc, const char* const* argv) {
  inputs::SourceOptions options;
  options.vocab_size = std::int64_t{1} << 31;
  std::string format = "auto";
  CLI::App app("Reads every token and mask byte of a data file", "stowage_data check");
  app.add_option("file", options.path, "The data file, as data.path names it")
      ->type_name("FILE")
      ->required();
  app.add_option("--source", format, "Its format, as data.source names it (default auto)")
      ->type_name("KIND");
  app.add_option("--vocab-size", options.vocab_size, "Tokens must be below this")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  app.add_option("--document-token", options.document_token, "As data.document_token");
  if (!run::parsed(app, argc, argv)) return;
  options.kind = file_kind(format);
  fmt::print("{}", check_text(options));
}

void write(const std::string& path, const std::string& text) {
  results::PartFile part(path, results::FileKind::statistics);
  std::ofstream file(part.part(), std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw execution::Error(
        execution::Exit::runtime,
        fmt::format("--json {}: could not be written whole: {}", path, std::strerror(errno)));
  part.commit();
}

/// Runs a command that reads a deck, unless its command line asks for words alone.
void with_deck(int argc, const char* const* argv, const char* name, const char* summary,
               std::vector<inputs::ExtraOption> options,
               const std::function<void(const inputs::CommandLine&)>& work) {
  const inputs::CommandLine command = inputs::parse_command_line(
      argc, argv,
      {.name = fmt::format("stowage_data {}", name),
       .summary = summary,
       .version = fmt::format("{} ({})", version::build_info().release,
                              version::build_info().git_describe),
       .options = std::move(options),
       .without = {"--out", "--json", "--dry-run", "--quiet", "--print-config"}});
  if (command.print_and_exit.empty()) {
    work(command);
  } else {
    fmt::print("{}", command.print_and_exit);
  }
}

void run_stats(int argc, const char* const* argv) {
  std::string json;
  with_deck(argc, argv, "stats", "Shows how a deck's documents lie in sequences and microbatches.",
            {{"--json", "Write the numbers here as well", &json, "FILE"}},
            [&](const inputs::CommandLine& command) {
              const DataStats stats = data_stats(command);
              if (!json.empty()) write(json, stats_json(stats));
              fmt::print("{}", stats_text(stats));
            });
}

void run_documents(int argc, const char* const* argv) {
  StepRange steps;
  with_deck(argc, argv, "documents",
            "Prints the lengths of the documents of a deck's steps, a microbatch a line.",
            {{"--first-step", "The first step, counted from 1 (default 1)", &steps.first},
             {"--steps", "How many (default 1)", &steps.count}},
            [&](const inputs::CommandLine& command) { print_documents(command, steps); });
}

}  // namespace
}  // namespace stowage::drivers

int main(int argc, char** argv) {
  using namespace stowage::drivers;
  return stowage::run::run_subcommands(argc, argv, "stowage_data", kHelp,
                                       {{"prepare", run_prepare},
                                        {"check", run_check},
                                        {"stats", run_stats},
                                        {"documents", run_documents}});
}
