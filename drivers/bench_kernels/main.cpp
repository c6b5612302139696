// stowage_bench_kernels: checks and times operators and their peers on one GPU.

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "drivers/bench_kernels/bench.hpp"
#include "execution/error.hpp"
#include "kernels/machine.hpp"
#include "results/output_path.hpp"
#include "run/measure/gemm.hpp"

namespace stowage::drivers::bench {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

void add_options(CLI::App& app, BenchOptions& options) {
  app.add_flag("--list", options.list, "Name the operators, their sizes and implementations");
  app.add_option("--op", options.ops, "Operator; may be repeated; default: all")->type_name("NAME");
  app.add_option("--shape", options.shapes, "Sizes, as B=2,T=8192; the others keep their default")
      ->type_name("SIZES");
  app.add_option("--impl", options.implementations, "Implementations, timed in turn; default: all")
      ->type_name("LIST")
      ->delimiter(',');
  app.add_option("--ceilings", options.ceilings, "Result set of stowage_ceilings")
      ->type_name("FILE");
  app.add_option("--product-table", options.product_table,
                 "Add the fastest algorithm of each product to this file, as a row of the table")
      ->type_name("FILE");
  app.add_option("--dump", options.dump, "Store inputs and outputs in this HDF5 file")
      ->type_name("FILE");
}

/// Whether an operator runs on this GPU; says so if it does not.
bool runs(const Entry& entry) {
  const std::string missing = kernels::machine().no_wgmma();
  if (!entry.wgmma || missing.empty()) return true;
  fmt::print("# {}: skipped, {}\n", entry.name, missing);
  return false;
}

/// No output is another one, or what is read.
void check_outputs(const BenchOptions& options) {
  std::vector<results::NamedPath> outputs, inputs;
  if (!options.measure.output.empty()) outputs.push_back({"--out", options.measure.output});
  if (!options.measure.json.empty()) outputs.push_back({"--json", options.measure.json});
  if (!options.dump.empty()) outputs.push_back({"--dump", options.dump});
  if (!options.product_table.empty()) {
    results::require_free(options.product_table, results::FileKind::product_table);
    outputs.push_back({"--product-table", options.product_table});
  }
  if (!options.ceilings.empty()) inputs.push_back({"--ceilings", options.ceilings});
  results::require_apart(outputs, inputs);
}

execution::Exit bench(const BenchOptions& options) {
  check_outputs(options);
  const std::vector<Entry> entries = registry();
  if (options.list) {
    fmt::print("{}", list_text(entries));
    return execution::Exit::valid;
  }
  std::vector<const Entry*> chosen;
  for (const std::string& name : options.ops) chosen.push_back(&find_entry(entries, name));
  if (options.ops.empty())
    for (const Entry& entry : entries) chosen.push_back(&entry);

  run::Gpu gpu(static_cast<int>(options.measure.device));
  run::Record record("bench_kernels", options.measure, gpu,
                     {{"bench.ops", joined(options.ops)},
                      {"bench.shapes", joined(options.shapes)},
                      {"bench.implementations", joined(options.implementations)},
                      {"bench.samples", options.measure.samples},
                      {"bench.seed", options.measure.seed}},
                     {{"cublas", run::Gemm::version()}});
  results::Verdict verdict;
  Bench runner(gpu, record, verdict, options);
  std::string headline;
  for (const Entry* entry : chosen) {
    if (!runs(*entry)) continue;
    std::vector<Shape> shapes = entry->shapes;
    if (!options.shapes.empty()) {
      shapes.clear();
      for (const std::string& text : options.shapes)
        shapes.push_back(entry->shapes.front().with(text));
    }
    for (const Shape& shape : shapes) {
      const std::string tag = runner.run(*entry, shape);
      if (headline.empty()) headline = tag;
    }
  }
  if (headline.empty())
    execution::throw_environment("nothing to measure: {}", kernels::machine().no_wgmma());
  runner.finish();
  return record.finish(verdict, headline);
}

}  // namespace
}  // namespace stowage::drivers::bench

int main(int argc, char** argv) {
  using namespace stowage::drivers;
  bench::BenchOptions options;
  return measure_main(
      argc, argv, "stowage_bench_kernels",
      "Checks and times operators and their peers on one GPU, on random data.", options.measure,
      [&](CLI::App& app) { bench::add_options(app, options); },
      [&] { return bench::bench(options); });
}
