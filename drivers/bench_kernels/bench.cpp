#include "drivers/bench_kernels/bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "drivers/bench_kernels/copy_peer.hpp"
#include "execution/error.hpp"
#include "results/statistics.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::throw_usage;

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

}  // namespace

std::string list_text(const std::vector<Entry>& entries) {
  std::string text;
  for (const Entry& entry : entries) {
    text += fmt::format("{:<20} {}{}\n", entry.name, entry.help,
                        entry.wgmma ? "; compute capability 9.0" : "");
    for (const Shape& shape : entry.shapes) text += fmt::format("    --shape {}\n", shape.text());
    for (const Implementation& one : entry.implementations)
      text += fmt::format("    --impl {:<14} {}\n", one.name,
                          one.missing.empty() ? one.version : "not in this build: " + one.missing);
  }
  return text;
}

const Entry& find_entry(const std::vector<Entry>& entries, const std::string& name) {
  std::string names;
  for (const Entry& entry : entries) {
    if (entry.name == name) return entry;
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  throw_usage("--op: no operator '{}' in this build; there are {}", name, names);
}

Bench::Bench(run::Gpu& gpu, run::Record& record, results::Verdict& verdict,
             const BenchOptions& options)
    : gpu_(gpu), record_(record), verdict_(verdict), options_(options), timer_(gpu) {
  if (!options.ceilings.empty()) {
    limits_ = results::read_ceilings(options.ceilings, gpu.rank_info().gpu_uuid);
    record_.refer(*limits_);
  }
  if (!options.dump.empty()) {
    dump_part_.emplace(options.dump, results::FileKind::dump);
    dump_ = std::make_unique<results::h5::File>(results::h5::File::create(dump_part_->part()));
    dump_->set_attribute("schema", std::string(results::kDumpSchema));
  }
  if (!options.product_table.empty()) {
    table_ = results::LineFile(options.product_table, results::FileKind::product_table, true);
    if (table_.empty()) table_.write(fmt::format("{} FILE`.", results::kProductTableHead));
  }
  fmt::print("# {:<58} {:<14} {:>10} {:>21} {:>9} {:>8} {:>6} {:>6} {:>11} {:>6} {:>5}\n",
             "operator and shape", "impl", "median us", "95 % interval us", "TFLOP/s", "GB/s",
             "limit", "copy", "error", "MHz", "W");
}

std::vector<Implementation> Bench::chosen(const Entry& entry) const {
  const bool named = !options_.implementations.empty();
  std::vector<Implementation> all;
  for (const Implementation& one : entry.implementations) {
    const auto& wanted = options_.implementations;
    const bool asked = std::find(wanted.begin(), wanted.end(), one.name) != wanted.end();
    if (named && asked && !one.missing.empty())
      throw_usage("--impl {}: not in this build: {}", one.name, one.missing);
    if ((!named || asked) && one.missing.empty()) all.push_back(one);
  }
  if (all.empty()) throw_usage("--impl: {} has none of these; --list shows them", entry.name);
  return all;
}

std::vector<Agreement> Bench::check(Case& one, const std::string& label,
                                    const std::string& implementation) {
  for (Operand* operand : one.operands) {
    if (operand->role() == Role::output) operand->poison();
    if (operand->role() == Role::update) operand->refill();
  }
  one.enqueue(implementation, gpu_.queue());
  gpu_.queue().synchronize();
  const std::vector<Agreement> agreements = one.check(implementation);
  for (const Agreement& agreement : agreements) {
    const std::string name = fmt::format("{}.{}.{}", label, implementation, agreement.what);
    verdict_.add(results::at_most(name, agreement.error, agreement.tolerance, formula(agreement)));
  }
  return agreements;
}

void Bench::dump(const Case& one, const std::string& label, const std::string& implementation) {
  if (!dump_) return;
  for (const Operand* operand : one.operands) {
    if (operand->role() == Role::workspace) continue;
    const bool output = operand->role() != Role::input;
    const std::string path =
        fmt::format("{}/{}/{}", label, output ? implementation : "inputs", operand->name());
    if (dump_->exists(path)) continue;
    auto set = dump_->make_dataset(path, operand->dtype(), operand->shape(),
                                   results::h5::Storage::checked);
    set.write(operand->download().data());
  }
}

void Bench::finish() {
  if (!dump_) return;
  dump_->close();
  dump_.reset();
  dump_part_->commit();
}

void Bench::report(const execution::Cost& cost, const std::string& tag,
                   const Implementation& implementation, std::vector<double> time_s,
                   const std::vector<Agreement>& agreements, double copy_s) {
  const results::Summary summary = results::summarize(time_s);
  const std::string base = fmt::format("kernels/{}/{}", tag, implementation.name);
  record_.add(results::metric(base + "/time", summary));
  record_.add(results::rate_metric(base + "/bytes_per_s", cost.bytes, summary));
  if (cost.flops > 0) record_.add(results::rate_metric(base + "/flops_per_s", cost.flops, summary));
  double share = std::nan("");
  if (limits_) {  // the resource that binds is the one that needs longer
    const double least_s =
        std::max(cost.bytes / limits_->bytes_per_s, cost.flops / limits_->flops_per_s);
    share = least_s / summary.median;
    record_.add(results::metric(base + "/pct_ceiling", share));
  }
  const double of_copy = copy_s / summary.median;
  if (std::isfinite(of_copy)) record_.add(results::metric(base + "/pct_copy", of_copy));
  const std::optional<double> error = worst_error(agreements);
  const run::GpuState& state = timer_.state();
  fmt::print(
      "{:<60} {:<14} {:>10.1f} {:>10.1f}..{:<9.1f} {:>9.1f} {:>8.0f} {:>5.1f}% {:>5.1f}% {:>11} "
      "{:>6.0f} {:>5.0f}\n",
      tag, implementation.name, summary.median * 1e6, summary.ci95.low * 1e6,
      summary.ci95.high * 1e6, cost.flops / summary.median / kTera,
      cost.bytes / summary.median / kGiga, share * 100, of_copy * 100,
      error ? fmt::format("{:.2e}", *error) : "not checked", state.clock_hz * 1e-6, state.power_w);
  std::fflush(stdout);
  results::Samples samples{.path = base,
                           .time_s = std::move(time_s),
                           .attributes = {{"flops", cost.flops},
                                          {"bytes", cost.bytes},
                                          {"clock_hz", state.clock_hz},
                                          {"power_w", state.power_w}}};
  if (error) samples.attributes.push_back({"error", *error});
  if (const std::string library = implementation.library(); !library.empty())
    samples.attributes.push_back({"library", library});
  for (const Agreement& part : agreements)  // "error.dq", and of a peer "dq.error_of_ours" over it
    samples.attributes.push_back({part.ratio ? part.what : "error." + part.what, part.error});
  record_.add(std::move(samples));
}

std::string Bench::run(const Entry& entry, const Shape& shape) {
  const std::vector<Implementation> implementations = chosen(entry);
  const auto one = entry.make(gpu_, shape, options_.measure.seed);
  const std::string tag = entry.name + "/" + shape.tag();
  const std::string label = entry.name + "." + shape.tag();
  if (!options_.product_table.empty() && !one->product_row().empty()) {
    table_.write(one->product_row());
    if (!table_.complete())
      throw execution::Error(execution::Exit::runtime,
                             fmt::format("--product-table: {} lacks rows", options_.product_table));
  }
  std::vector<std::vector<Agreement>> agreements;
  std::vector<run::Work> contenders;
  for (const Implementation& implementation : implementations) {
    const std::string& name = implementation.name;
    agreements.push_back(check(*one, label, name));
    dump(*one, label, name);
    contenders.push_back([&one, name](execution::Queue& queue) { one->enqueue(name, queue); });
  }
  const execution::Cost cost = one->cost();
  std::unique_ptr<CopyPeer> copy;
  if (entry.name != CopyPeer::kName && CopyPeer::binds(cost)) {
    copy = std::make_unique<CopyPeer>(gpu_, cost.bytes, options_.measure.seed);
    contenders.push_back([&copy](execution::Queue& queue) { copy->enqueue(queue); });
  }
  auto times = timer_.alternate(contenders, static_cast<int>(options_.measure.samples));
  const double copy_s = copy ? results::summarize(times.back()).median : std::nan("");
  for (std::size_t i = 0; i < implementations.size(); ++i) {
    const execution::Cost part = one->cost_of(implementations[i].name);
    report(part, tag, implementations[i], std::move(times[i]), agreements[i],
           part.bytes == cost.bytes ? copy_s : std::nan(""));
  }
  if (copy)
    report({0, cost.bytes}, tag, {CopyPeer::kName, "", ""}, std::move(times.back()), {},
           std::nan(""));
  return fmt::format("kernels/{}/{}/time", tag, implementations.front().name);
}

}  // namespace stowage::drivers::bench
