// A pipeline's timeline as a trace, with the copies of its ranks' plans.
#include <fmt/core.h>

#include "drivers/plan/timeline.hpp"
#include "results/trace.hpp"

namespace stowage::drivers {
namespace {

using forecast::Timeline;
using layers::Pass;

/// "forward of microbatch 3", "backward of microbatch 3, stage 2".
std::string pass_name(const Pass& pass, const layers::PipelineShape& shape, int rank) {
  const char* const kind = pass.kind == Pass::Kind::backward  ? "backward"
                           : pass.kind == Pass::Kind::weights ? "weights"
                                                              : "forward";
  std::string name = fmt::format("{} of microbatch {}", kind, pass.slot);
  if (shape.virtual_stages > 1) name += fmt::format(", stage {}", shape.stage(rank, pass.chunk));
  return name;
}

std::string exchange_name(const Pass& pass) {
  std::string name;
  for (const layers::StageTransfer& transfer : pass.transfers)
    name += fmt::format("{}{} {} of microbatch {}", name.empty() ? "" : ", ",
                        transfer.sends ? "send" : "receive",
                        transfer.gradient ? "gradient" : "stream", transfer.slot);
  return name;
}

/// Queues of a rank in the picture.
enum PictureQueue { kCompute, kExchange, kOut, kIn };

}  // namespace

void PipelinePicture::write(results::PartFile& part) const {
  const layers::PipelineShape shape{static_cast<int>(timeline_.ranks.size()),
                                    pipeline_.virtual_stages};
  results::Trace trace;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const forecast::Timeline::Rank& line = timeline_.ranks[rank];
    trace.name_queue(rank, kCompute, "compute");
    trace.name_queue(rank, kExchange, "comm pipeline");
    for (std::size_t i = 0; i < line.passes.size(); ++i) {
      const Pass& pass = line.passes[i];
      const double begin_s = line.spans[i].begin_s, time_s = line.spans[i].end_s - begin_s;
      if (pass.kind == Pass::Kind::exchange)
        trace.add({rank, kExchange, exchange_name(pass), begin_s, time_s});
      else
        trace.add({rank, kCompute, pass_name(pass, shape, rank), begin_s, time_s});
    }
    if (plans_.empty() || plans_[rank].copies.empty()) continue;
    trace.name_queue(rank, kOut, "d2h");
    trace.name_queue(rank, kIn, "h2d");
    for (const forecast::RankPlan::Copy& copy : copies_in(line, plans_[rank]))
      trace.add({rank, copy.out ? kOut : kIn, copy.name, copy.begin_s, copy.time_s});
  }
  trace.write(part, "--trace");
}

}  // namespace stowage::drivers
