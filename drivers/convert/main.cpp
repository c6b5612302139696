// stowage_convert: models that others published, in and out.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <string>

#include "drivers/convert/export.hpp"
#include "drivers/convert/import.hpp"
#include "execution/error.hpp"
#include "inputs/deck/value.hpp"
#include "run/command/subcommands.hpp"

namespace stowage::drivers {
namespace {

using execution::throw_usage;

constexpr const char* kHelp =
    "Turns published models into checkpoints and checkpoints into published models.\n"
    "Usage: stowage_convert COMMAND [OPTIONS]\n\n"
    "  import FOLDER --out DIRECTORY --deck FILE.toml\n"
    "                         a Hugging Face folder to a checkpoint and a deck\n"
    "  export CHECKPOINT --out FOLDER\n"
    "                         a checkpoint to a Hugging Face folder\n\n"
    "stowage_convert COMMAND --help lists the options of a command.\n";

void run_import(int argc, const char* const* argv) {
  ImportOptions options;
  CLI::App app("A Hugging Face folder to a checkpoint of weights and a deck of the model",
               "stowage_convert import");
  app.add_option("folder", options.folder, "config.json and safetensors, in one file or shards")
      ->type_name("FOLDER")
      ->required();
  app.add_option("--out,--output", options.output,
                 "Folder for the checkpoint; a run continues there (checkpoint.directory)")
      ->type_name("FOLDER")
      ->required();
  app.add_option("--deck", options.deck, "The deck to write")->type_name("FILE")->required();
  app.add_option("--ignore-key", options.ignored_keys,
                 "A key of config.json that is not known and does not change the model; again for "
                 "each such key")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (run::parsed(app, argc, argv)) fmt::print("{}", import_folder(options));
}

void run_export(int argc, const char* const* argv) {
  run::ExportOptions options;
  std::string checkpoint, shard = "5 GiB", weights = "trained";
  CLI::App app("The weights of a checkpoint to a Hugging Face folder", "stowage_convert export");
  app.add_option("checkpoint", checkpoint, "A checkpoint, or a folder of them: its latest")
      ->type_name("PATH")
      ->required();
  app.add_option("--out,--output", options.output, "The folder to write; it must not be there")
      ->type_name("FOLDER")
      ->required();
  app.add_option("--like", options.like,
                 "A published folder whose tokenizer and other keys of config.json are taken over "
                 "(default: what an import kept beside the checkpoint)")
      ->type_name("FOLDER");
  app.add_option("--family", options.family,
                 "model_type to write (default: that of --like, or the first that fits)")
      ->type_name("NAME");
  app.add_option("--shard-size", shard, "Bytes of a file at most (default 5 GiB)")
      ->type_name("BYTES");
  app.add_option("--weights", weights,
                 "trained, or ema: averages that optim.ema_decay has kept (default trained)")
      ->type_name("NAME");
  if (!run::parsed(app, argc, argv)) return;
  options.weights = run::weights_called(weights);
  const auto bytes = inputs::parse_bytes(shard);
  if (!bytes || *bytes < 1)
    throw_usage("--shard-size {}: allowed: bytes above 0, such as 512 MiB", shard);
  options.shard_bytes = *bytes;
  fmt::print("{}", export_checkpoint(checkpoint, options));
}

}  // namespace
}  // namespace stowage::drivers

int main(int argc, char** argv) {
  using namespace stowage::drivers;
  return stowage::run::run_subcommands(argc, argv, "stowage_convert", kHelp,
                                       {{"import", run_import}, {"export", run_export}});
}
