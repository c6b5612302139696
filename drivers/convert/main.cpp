// stowage_convert: models that others published, in and out.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <string>

#include "drivers/convert/export.hpp"
#include "drivers/convert/import.hpp"
#include "execution/error.hpp"
#include "inputs/deck/value.hpp"
#include "parallel/run_main.hpp"
#include "version/version.hpp"

namespace stowage::drivers {
namespace {

using execution::throw_usage;

constexpr const char* kHelp =
    "Turns published models into checkpoints and checkpoints into published models.\n"
    "Usage: stowage_convert COMMAND [OPTIONS]\n\n"
    "  import FOLDER --output DIRECTORY --deck FILE.toml\n"
    "                         a Hugging Face folder to a checkpoint and a deck\n"
    "  export CHECKPOINT --output FOLDER\n"
    "                         a checkpoint to a Hugging Face folder\n\n"
    "stowage_convert COMMAND --help lists the options of a command.\n";

/// Parses; prints help and returns false if that was asked for.
bool parsed(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw_usage("command line: {} (--help lists the options)", error.what());
  }
  return true;
}

void run_import(int argc, const char* const* argv) {
  ImportOptions options;
  CLI::App app("A Hugging Face folder to a checkpoint of weights and a deck of the model",
               "stowage_convert import");
  app.add_option("folder", options.folder, "config.json and safetensors, in one file or shards")
      ->required();
  app.add_option("--output", options.output,
                 "Folder for the checkpoint; a run continues there (checkpoint.directory)")
      ->required();
  app.add_option("--deck", options.deck, "The deck to write")->required();
  if (parsed(app, argc, argv)) fmt::print("{}", import_folder(options));
}

void run_export(int argc, const char* const* argv) {
  ExportOptions options;
  std::string shard = "5 GiB";
  CLI::App app("The weights of a checkpoint to a Hugging Face folder", "stowage_convert export");
  app.add_option("checkpoint", options.checkpoint, "A checkpoint, or a folder of them: its latest")
      ->required();
  app.add_option("--output", options.output, "The folder to write; it must not be there")
      ->required();
  app.add_option("--like", options.like,
                 "A published folder whose tokenizer and other keys of config.json are taken over "
                 "(default: what an import kept beside the checkpoint)");
  app.add_option("--family", options.family,
                 "model_type to write (default: that of --like, or the first that fits)");
  app.add_option("--shard-size", shard, "Bytes of a file at most (default 5 GiB)");
  if (!parsed(app, argc, argv)) return;
  const auto bytes = inputs::parse_bytes(shard);
  if (!bytes || *bytes < 1)
    throw_usage("--shard-size {}: allowed: bytes above 0, such as 512 MiB", shard);
  options.shard_bytes = *bytes;
  fmt::print("{}", export_checkpoint(options));
}

}  // namespace
}  // namespace stowage::drivers

int main(int argc, char** argv) {
  using namespace stowage;
  return parallel::run_main(argc, argv, [&](const parallel::Communicator& world) {
    if (world.size() != 1)
      execution::throw_environment("stowage_convert runs on 1 rank, {} were started", world.size());
    const std::string word = argc > 1 ? argv[1] : "--help";
    if (word == "import")
      drivers::run_import(argc - 1, argv + 1);
    else if (word == "export")
      drivers::run_export(argc - 1, argv + 1);
    else if (word == "--version")
      fmt::print("stowage_convert {} ({})\n", version::build_info().release,
                 version::build_info().git_describe);
    else if (word == "--help" || word == "-h")
      fmt::print("{}", drivers::kHelp);
    else
      execution::throw_usage("command '{}' is not known; allowed: import, export", word);
    return execution::Exit::valid;
  });
}
