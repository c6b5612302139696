#include "run/command/output_files.hpp"

#include <fmt/core.h>

#include <string>

#include "execution/error.hpp"
#include "inputs/data/run_section.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"

namespace stowage::run {
namespace {

bool is_of_a_stopped_run(const std::filesystem::path& set) {
  if (results::kind_of(set) != results::FileKind::result_set) return false;
  return results::h5::File::open(set, results::kResultSchema).text_attribute("verdict") ==
         results::name(results::Outcome::stopped);
}

}  // namespace

ResultPaths result_paths(const inputs::Deck& deck, const inputs::CommandLine& command,
                         std::int64_t first_step) {
  const std::string given = inputs::read(deck, &inputs::RunConfig::output);
  ResultPaths paths;
  paths.result = given.empty() ? inputs::read(deck, &inputs::RunConfig::name) + ".h5" : given;
  if (!paths.result.has_filename())
    execution::throw_usage("{}: names a folder, not a file",
                           inputs::cite(deck, &inputs::RunConfig::output));
  std::error_code none;
  if (first_step > 0 && std::filesystem::exists(paths.result, none) &&
      !is_of_a_stopped_run(paths.result))
    paths.result.replace_filename(fmt::format("{}.from_{}{}", paths.result.stem().string(),
                                              first_step, paths.result.extension().string()));
  paths.log = command.json;
  if (paths.log.empty()) paths.log = std::filesystem::path(paths.result).replace_extension("jsonl");
  return paths;
}

bool left_unfinished(const inputs::Deck& deck, const inputs::CommandLine& command,
                     std::int64_t first_step) {
  std::error_code none;
  return std::filesystem::exists(results::part_of(result_paths(deck, command, first_step).result),
                                 none);
}

std::filesystem::path benchmark_path(const inputs::Deck& deck, std::string_view kind) {
  const std::string given = inputs::read(deck, &inputs::RunConfig::output);
  return given.empty() ? fmt::format("{}.{}.h5", inputs::read(deck, &inputs::RunConfig::name), kind)
                       : given;
}

std::vector<results::NamedPath> benchmark_outputs(const inputs::Deck& deck,
                                                  const inputs::CommandLine& command,
                                                  std::string_view kind) {
  std::vector<results::NamedPath> files = {
      {std::string(inputs::key(&inputs::RunConfig::output)), benchmark_path(deck, kind)}};
  if (!command.json.empty()) files.push_back({"--json", command.json});
  return files;
}

std::vector<results::NamedPath> deck_files(const inputs::Deck& deck,
                                           const inputs::CommandLine& command) {
  std::vector<results::NamedPath> files;
  for (const std::string& path : deck.files()) files.push_back({"the deck", path});
  if (!command.from.empty()) files.push_back({"the result set of --from", command.from});
  return files;
}

std::vector<results::NamedPath> input_files(const inputs::Deck& deck,
                                            const inputs::CommandLine& command,
                                            const inputs::Data& data) {
  std::vector<results::NamedPath> files = deck_files(deck, command);
  for (const std::string& path : data.files()) files.push_back({"the data", path});
  return files;
}

}  // namespace stowage::run
