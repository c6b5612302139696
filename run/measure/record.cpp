#include "run/measure/record.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "results/console.hpp"

namespace stowage::run {
namespace {

/// The configuration as TOML lines: keys of one table.
std::string toml(const results::Fields& config) {
  std::string text;
  for (const results::Field& field : config) {
    const std::string value = std::visit(
        [](const auto& held) {
          using Held = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<Held, std::string>)
            return fmt::format("\"{}\"", held);
          else
            return fmt::format("{}", held);
        },
        field.value);
    text += fmt::format("{} = {}\n", field.name, value);
  }
  return text;
}

}  // namespace

std::vector<std::string> process_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

Record::Record(const std::string& driver, const MeasureOptions& options, const Gpu& gpu,
               results::Fields config, const results::Fields& software) {
  const std::vector<std::string> words = process_arguments();
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  results::ResultHeader header{
      .driver = driver,
      .deck_given = {},
      .deck_resolved = toml(config),
      .config = std::move(config),
      .run = results::begin_run(static_cast<int>(argv.size()), argv.data(), 1, options.seed),
      .ranks = {gpu.rank_info()},
      .software = results::software(software),
      .files = {}};
  uuid_ = header.run.uuid;
  header.json = options.json;
  driver_ = driver;
  path_ = options.output;
  if (!options.output.empty())
    set_ = std::make_unique<results::ResultSet>(options.output, header);
  else if (!options.json.empty())
    json_ = results::JsonLog(options.json);
  fmt::print("{}{}", results::header_text("stowage_" + driver, header.run, header.ranks, software),
             results::ranks_text(header.ranks));
  std::fflush(stdout);
}

void Record::add(results::Metric metric) {
  if (set_) set_->add(metric);
  metrics_.push_back(std::move(metric));
}

void Record::add(results::Samples samples) {
  if (set_) set_->add(std::move(samples));
}

void Record::add(results::Ceiling ceiling) {
  if (set_) set_->add(std::move(ceiling));
}

void Record::refer(const results::CeilingsReference& ceilings) {
  if (set_) set_->refer(ceilings);
}

results::Series* Record::series(std::string group, std::string scale,
                                std::vector<results::SeriesColumn> columns) {
  return set_ ? &set_->series(std::move(group), std::move(scale), std::move(columns)) : nullptr;
}

void Record::print_metrics() const { fmt::print("{}", results::metrics_text(metrics_)); }

execution::Exit Record::finish(const results::Verdict& verdict, const std::string& headline_tag) {
  if (set_) set_->finish(verdict);
  json_.write_outcome({driver_, uuid_, path_}, metrics_, verdict);
  const auto headline = std::find_if(metrics_.begin(), metrics_.end(),
                                     [&](const auto& m) { return m.tag == headline_tag; });
  STOWAGE_ASSERT(headline != metrics_.end(), "no metric {}", headline_tag);
  fmt::print("{}{}", results::validation_text(verdict),
             results::verdict_line(verdict, *headline, uuid_, path_));
  return verdict.exit();
}

}  // namespace stowage::run
