#include "layers/state/gradient_sums.hpp"

#include "execution/philox.hpp"
#include "kernels/optimizer/round_sum.hpp"
#include "layers/state/state.hpp"

namespace stowage::layers {

bool GradientSums::in(const execution::PersistentLayout& layout, Precision precision,
                      const Parameter& parameter) {
  return layout.whole(gradient_name(parameter.name)).buffers[0].dtype != precision.accumulation();
}

void GradientSums::add(Recorder& recorder, std::span<const Parameter> parameters,
                       const parallel::Leaf& microbatch) const {
  Program& program = recorder.program();
  for (const Parameter& parameter : parameters) {
    const std::string name = gradient_name(parameter.name);
    const kernels::RoundSum op{.elements = parameter.elements(),
                               .storage = recorder.storage(),
                               .accumulate = recorder.batch().later,
                               .counted = static_cast<bool>(microbatch.index),
                               .number = microbatch.number,
                               .seed = seed_,
                               .stream = execution::stream_of(name),
                               .index = parameter.index()};
    recorder.compute("round_sum/" + parameter.name, op,
                     {.step = program.add(layout_.info(kGoodSteps)),
                      .microbatch = microbatch.index,
                      .x = recorder.gradient(parameter),
                      .sum = program.add(layout_.info(name))});
  }
}

}  // namespace stowage::layers
