// stowage_ceilings: measures what every other figure of this machine is compared with.

#include <fmt/core.h>

#include "drivers/ceilings/ceilings.hpp"
#include "run/measure/gemm.hpp"

int main(int argc, char** argv) {
  using namespace stowage;
  using namespace stowage::drivers;
  run::MeasureOptions options;
  return measure_main(
      argc, argv, "stowage_ceilings",
      "Measures products, copies and their interference on one GPU, on random data.", options,
      [](CLI::App&) {},
      [&] {
        run::Gpu gpu(static_cast<int>(options.device));
        run::Timer timer(gpu);
        run::Record record("ceilings", options, gpu,
                           {{"ceilings.samples", options.samples},
                            {"ceilings.device", options.device},
                            {"ceilings.seed", options.seed}},
                           {{"cublas", run::Gemm::version()}});
        results::Verdict verdict;
        Ceilings run{gpu, timer, record, verdict, options};
        measure_products(run);
        measure_copies(run);
        measure_interference(run);
        record.print_metrics();
        return record.finish(verdict, "ceilings/gemm_bf16/cube_8192/flops_per_s");
      });
}
