#include "results/result_set.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <list>

#include "execution/error.hpp"
#include "results/environment.hpp"
#include "results/format.hpp"
#include "results/h5.hpp"
#include "results/json_log.hpp"
#include "results/links.hpp"
#include "results/part_file.hpp"
#include "version/version.hpp"

namespace stowage::results {

using execution::Dtype;

namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void write_run(h5::Group& root, const RunInfo& run) {
  h5::Group group = root.make_group("provenance/run");
  group.set_attributes({{"uuid", run.uuid},
                        {"start", run.start},
                        {"stop", std::string()},
                        {"argv", joined(run.argv)},
                        {"cwd", std::filesystem::current_path().filename().string()},
                        {"ranks", run.ranks},
                        {"seed", run.seed},
                        {"slurm_job_id", environment("SLURM_JOB_ID")},
                        {"nodelist", environment("SLURM_JOB_NODELIST")},
                        {"restart_count", environment("SLURM_RESTART_COUNT")}});
}

void write_system(h5::Group& root, const std::vector<RankInfo>& ranks) {
  std::vector<h5::Column> columns;
  for_each_rank_field([&](const char* field, auto member, bool) {
    std::vector<std::decay_t<decltype(RankInfo{}.*member)>> rows;
    for (const auto& rank : ranks) rows.push_back(rank.*member);
    columns.push_back({field, std::move(rows)});
  });
  root.write_table("provenance/system/ranks", columns);
  root.write_lines("provenance/system/differences", differences(ranks));
  root.write_lines("provenance/system/warnings", warnings(ranks));
  root.write_lines("provenance/system/links", link_lines(ranks));
}

void write_files(h5::Group& root, const std::vector<FileRecord>& files) {
  std::vector<std::string> paths;
  std::vector<std::int64_t> bytes;
  std::vector<std::string> hashes;
  for (const auto& file : files) {
    paths.push_back(file.path);
    bytes.push_back(file.bytes);
    hashes.push_back(file.sha256);
  }
  root.write_table("files", {{"path", paths}, {"bytes", bytes}, {"sha256", hashes}});
}

void write_choices(h5::Group& root, const std::vector<Choice>& choices) {
  std::vector<std::string> libraries, what, chosen, sources;
  for (const Choice& choice : choices) {
    libraries.push_back(choice.library);
    what.push_back(choice.what);
    chosen.push_back(choice.chosen);
    sources.push_back(choice.source);
  }
  root.write_table(
      "provenance/choices",
      {{"library", libraries}, {"what", what}, {"chosen", chosen}, {"source", sources}});
}

/// A member of all rows as a column of a table.
template <class Row, class Value>
h5::Column column(const std::vector<Row>& rows, const char* name, Value Row::*member) {
  std::vector<Value> values;
  for (const Row& row : rows) values.push_back(row.*member);
  return {name, std::move(values)};
}

void write_modules(h5::Group& root, const std::vector<ModuleCopies>& rows) {
  using Row = ModuleCopies;
  if (rows.empty()) return;
  root.write_table(
      "offload/modules",
      {column(rows, "plan", &Row::plan), column(rows, "module", &Row::module),
       column(rows, "bytes", &Row::bytes), column(rows, "offloaded_bytes", &Row::offloaded_bytes),
       column(rows, "recomputed_bytes", &Row::recomputed_bytes),
       column(rows, "copies", &Row::copies), column(rows, "d2h_bytes_per_s", &Row::d2h_bytes_per_s),
       column(rows, "h2d_bytes_per_s", &Row::h2d_bytes_per_s),
       column(rows, "exposed_s", &Row::exposed_s)});
}

void write_stages(h5::Group& root, const std::vector<StageNeeds>& rows) {
  using Row = StageNeeds;
  if (rows.empty()) return;
  root.write_table(
      "offload/stages",
      {column(rows, "plan", &Row::plan), column(rows, "stage", &Row::stage),
       column(rows, "persistent_bytes", &Row::persistent_bytes),
       column(rows, "transient_bytes", &Row::transient_bytes),
       column(rows, "host_bytes", &Row::host_bytes), column(rows, "copies", &Row::copies),
       column(rows, "offloaded_bytes", &Row::offloaded_bytes), column(rows, "reruns", &Row::reruns),
       column(rows, "predicted_time_s", &Row::predicted_time_s),
       column(rows, "exposed_s", &Row::exposed_s)});
}

void write_states(h5::Group& root, const std::vector<StateAt>& states) {
  std::vector<std::int64_t> steps;
  std::vector<std::string> digests;
  for (const StateAt& state : states) {
    steps.push_back(state.step);
    digests.push_back(state.digest);
  }
  if (!states.empty())
    root.write_table("validation/state_digest", {{"step", steps}, {"digest", digests}});
}

void write_header(h5::Group& root, const ResultHeader& header) {
  const auto& build = version::build_info();
  root.set_attributes({{"schema", std::string(kResultSchema)},
                       {"schema_version", std::string(kSchemaVersion)},
                       {"created", header.run.start},
                       {"uuid", header.run.uuid},
                       {"verdict", std::string(name(Outcome::unfinished))},
                       {"remark", std::string()},
                       {"driver", header.driver},
                       {"software", std::string("stowage")},
                       {"software_version", std::string(build.release)},
                       {"git_describe", std::string(build.git_describe)}});
  h5::Group config = root.make_group("config");
  config.set_attributes(header.config);
  config.write_text("deck_given", header.deck_given);
  config.write_text("deck_resolved", header.deck_resolved);
  if (!header.numerics_sha256.empty()) config.write_text("numerics_sha256", header.numerics_sha256);
  write_run(root, header.run);
  root.make_group("provenance/software").set_attributes(header.software);
  root.write_lines("provenance/software/libraries", loaded_libraries());
  write_system(root, header.ranks);
  if (!header.grid.empty()) root.make_group("provenance/grid").set_attributes(header.grid);
  root.make_group("provenance/env").set_attributes(allowed_environment());
  for (const char* group : {"metrics", "series", "samples", "ceilings", "validation"})
    root.make_group(group);
}

void write_metric(h5::Group& root, const Metric& metric) {
  h5::Dataset made =
      root.make_dataset("metrics/" + metric.tag, Dtype::fp64, {}, h5::Storage::plain);
  made.write(&metric.value);
  made.set_attributes({{"units", metric.unit},
                       {"long_name", metric.help},
                       {"better", std::string(name(metric.better))},
                       {"median_of", metric.median_of},
                       {"ci95_low", metric.ci95.low},
                       {"ci95_high", metric.ci95.high}});
}

void write_samples(h5::Group& root, const Samples& samples) {
  const auto count = static_cast<std::int64_t>(samples.time_s.size());
  STOWAGE_ASSERT(samples.ranks > 0 && count % samples.ranks == 0,
                 "samples {}: {} numbers for {} ranks", samples.path, count, samples.ranks);
  h5::Shape shape = {count / samples.ranks};
  if (samples.ranks > 1) shape.push_back(samples.ranks);
  h5::Dataset made =
      root.make_dataset("samples/" + samples.path, Dtype::fp64, shape, h5::Storage::packed);
  if (count > 0) made.write(samples.time_s.data());
  made.set_attribute("units", std::string("s"));
  made.set_attributes(samples.attributes);
}

void write_ceiling(h5::Group& root, const Ceiling& ceiling) {
  h5::Group group = root.make_group("ceilings");
  h5::Dataset size = group.write_values(ceiling.name + "_size", ceiling.size);
  std::vector<h5::Dataset> users;
  users.push_back(group.write_values(ceiling.name, ceiling.value));
  users[0].set_attribute("units", ceiling.unit);
  h5::attach_scale(size, ceiling.name + "_size", users);
}

void write_checks(h5::Group& root, const Verdict& verdict) {
  for (const auto& check : verdict.checks())
    root.make_group("validation/" + check.name)
        .set_attributes({{"result", std::string(check.passed() ? "PASSED" : "FAILED")},
                         {"value", check.value},
                         {"low", check.low},
                         {"high", check.high},
                         {"threshold", check.threshold()},
                         {"formula", check.formula}});
}

}  // namespace

struct ResultSet::State {
  State(std::filesystem::path path, const ResultHeader& header)
      : part(std::move(path), FileKind::result_set),
        file(h5::File::create(part.part())),
        driver(header.driver),
        uuid(header.run.uuid),
        files(header.files) {
    if (!header.json.empty()) json = JsonLog(header.json);
    write_header(file, header);
    file.flush();
  }

  // Everything but the verdict: also what a run that failed leaves in its .part.
  void write_body();
  static void write_series(h5::Group& root, const Series& series);

  PartFile part;
  h5::File file;
  JsonLog json;
  std::string driver, uuid;
  std::vector<FileRecord> files;
  std::list<Series> series;  // a list: references to its members stay valid
  std::vector<Metric> metrics;
  std::vector<Samples> samples;
  std::vector<Ceiling> ceilings;
  std::vector<Choice> choices;
  std::vector<ModuleCopies> modules;
  std::vector<StageNeeds> stages;
  std::vector<StateAt> states;
  bool finished = false;
};

void ResultSet::State::write_series(h5::Group& root, const Series& series) {
  h5::Group group = root.make_group("series/" + series.group_);
  const std::int64_t entries = series.size();
  h5::Dataset scale =
      group.make_dataset(series.scale_, Dtype::int64, {entries}, h5::Storage::packed);
  if (entries > 0) scale.write(series.at_.data());
  std::vector<h5::Dataset> users;
  std::int64_t offset = 0;
  for (const auto& column : series.columns_) {
    h5::Shape shape = {entries};
    shape.insert(shape.end(), column.shape.begin(), column.shape.end());
    std::int64_t width = 1;
    for (const std::int64_t extent : column.shape) width *= extent;
    std::vector<double> values;
    for (std::int64_t row = 0; row < entries; ++row) {
      const double* from = series.values_.data() + row * series.width_ + offset;
      values.insert(values.end(), from, from + width);
    }
    offset += width;
    h5::Dataset made = group.make_dataset(column.name, Dtype::fp64, shape, h5::Storage::packed);
    if (!values.empty()) made.write(values.data());
    made.set_attributes({{"units", column.unit}, {"long_name", column.help}});
    users.push_back(std::move(made));
  }
  h5::attach_scale(scale, series.scale_, users);
}

void ResultSet::State::write_body() {
  for (const auto& one : series) write_series(file, one);
  for (const auto& one : metrics) write_metric(file, one);
  for (const auto& one : samples) write_samples(file, one);
  for (const auto& one : ceilings) write_ceiling(file, one);
  write_files(file, files);
  write_choices(file, choices);
  write_modules(file, modules);
  write_stages(file, stages);
  write_states(file, states);
  file.group("provenance/run").set_attribute("stop", utc_now());
}

Series::Series(std::string group, std::string scale, std::vector<SeriesColumn> columns)
    : group_(std::move(group)), scale_(std::move(scale)), columns_(std::move(columns)) {
  for (const auto& column : columns_) {
    std::int64_t width = 1;
    for (const std::int64_t extent : column.shape) width *= extent;
    width_ += width;
  }
}

void Series::append(std::int64_t at, std::span<const double> values) {
  STOWAGE_ASSERT(static_cast<std::int64_t>(values.size()) == width_,
                 "series {} takes {} numbers an entry, not {}", group_, width_, values.size());
  STOWAGE_ASSERT(at_.empty() || at > at_.back(), "series {}: {} {} follows {}", group_, scale_, at,
                 at_.back());
  at_.push_back(at);
  values_.insert(values_.end(), values.begin(), values.end());
}

std::vector<double> Series::column(std::string_view name) const {
  std::int64_t offset = 0;
  for (const auto& column : columns_) {
    std::int64_t width = 1;
    for (const std::int64_t extent : column.shape) width *= extent;
    if (column.name == name && column.shape.empty()) {
      std::vector<double> values;
      for (std::int64_t row = 0; row < size(); ++row)
        values.push_back(values_[row * width_ + offset]);
      return values;
    }
    offset += width;
  }
  throw execution::Error(execution::Exit::runtime,
                         fmt::format("series {} has no scalar column {}", group_, name));
}

ResultSet::ResultSet(std::filesystem::path path, const ResultHeader& header)
    : state_(std::make_unique<State>(std::move(path), header)) {}

ResultSet::~ResultSet() {
  if (state_->finished) return;
  const auto filled = [](const Series& series) { return series.size() > 0; };
  if (std::none_of(state_->series.begin(), state_->series.end(), filled)) return;
  try {
    state_->write_body();
    state_->part.keep();
  } catch (...) {
    // The run has failed already and says why; its .part is only a help.
  }
}

Series& ResultSet::series(std::string group, std::string scale, std::vector<SeriesColumn> columns) {
  state_->series.push_back(Series(std::move(group), std::move(scale), std::move(columns)));
  return state_->series.back();
}

void ResultSet::add(Metric metric) {
  for (auto& held : state_->metrics)
    if (held.tag == metric.tag) {
      held = std::move(metric);
      return;
    }
  state_->metrics.push_back(std::move(metric));
}

void ResultSet::add(Samples samples) { state_->samples.push_back(std::move(samples)); }
void ResultSet::add(Ceiling ceiling) { state_->ceilings.push_back(std::move(ceiling)); }
void ResultSet::add(FileRecord file) { state_->files.push_back(std::move(file)); }
void ResultSet::add(Choice choice) { state_->choices.push_back(std::move(choice)); }
void ResultSet::add(ModuleCopies row) { state_->modules.push_back(std::move(row)); }
void ResultSet::add(StageNeeds row) { state_->stages.push_back(std::move(row)); }
void ResultSet::add(StateAt state) { state_->states.push_back(std::move(state)); }
void ResultSet::refer(const CeilingsReference& ceilings) {
  state_->file.make_group("provenance/ceilings")
      .set_attributes({{"uuid", ceilings.uuid},
                       {"created", ceilings.created},
                       {"git_describe", ceilings.git_describe},
                       {"digest", ceilings.digest},
                       {"same_board", std::int64_t{ceilings.same_board}},
                       {"flops_per_s", ceilings.flops_per_s},
                       {"bytes_per_s", ceilings.bytes_per_s}});
}

void ResultSet::refer(const ResumedFrom& resumed) {
  state_->file.make_group("provenance/resumed")
      .set_attributes({{"checkpoint", resumed.checkpoint},
                       {"step", resumed.step},
                       {"seal", resumed.seal},
                       {"run", resumed.run}});
}

const std::vector<Metric>& ResultSet::metrics() const { return state_->metrics; }
const std::filesystem::path& ResultSet::path() const { return state_->part.final_path(); }
const std::string& ResultSet::uuid() const { return state_->uuid; }

std::filesystem::path ResultSet::finish(const Verdict& verdict) {
  STOWAGE_ASSERT(!state_->finished, "result set {} is finished twice", path().string());
  state_->finished = true;
  try {
    state_->write_body();
    write_checks(state_->file, verdict);
    state_->file.set_attribute("verdict", std::string(name(verdict.outcome())));
    state_->file.set_attribute("remark", verdict.remark());
    state_->file.close();
    std::filesystem::path older = state_->part.commit();
    state_->json.write_outcome({state_->driver, uuid(), path()}, metrics(), verdict);
    return older;
  } catch (const execution::Error& error) {
    throw execution::Error(error.exit(), fmt::format("the result set {} is not written: {}",
                                                     path().string(), error.what()));
  }
}

std::string read_config(const std::filesystem::path& path) {
  return h5::read_file(path, kResultSchema, [&](const h5::File& file) {
    if (!file.exists("config/deck_resolved"))
      execution::throw_usage("{}: has no /config/deck_resolved to run again", path.string());
    return file.read_text("config/deck_resolved");
  });
}

}  // namespace stowage::results
