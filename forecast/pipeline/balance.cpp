#include "forecast/pipeline/balance.hpp"

#include <algorithm>
#include <compare>
#include <limits>
#include <utility>

#include "layers/state/state.hpp"
#include "offload/planner.hpp"
#include "offload/prediction.hpp"

namespace stowage::forecast {
namespace {

using execution::Op;
using execution::Program;

/// The time of the pass with this number in there.
double& time_of(layers::PassTimes& times, int pass) {
  return pass == 0 ? times.forward_s : pass == 1 ? times.backward_s : times.weights_s;
}

PartTimes none(int layers) {
  return {{}, std::vector<layers::PassTimes>(static_cast<std::size_t>(layers)), {}};
}

bool communicates(const Op& op) { return op.lane == execution::Lane::comm; }

/// The sums of the times of what computes, or is exchanged beside compute, in each pass.
PartTimes summed(const Program& microbatch, int layers, const offload::Rates& rates,
                 bool exchanged) {
  PartTimes times = none(layers);
  const std::vector<int> passes = passes_of(microbatch);
  for (int i = 0; i < static_cast<int>(passes.size()); ++i) {
    const Op& op = microbatch.ops()[static_cast<std::size_t>(i)];
    if (passes[i] < 0 || op.only_rerun || communicates(op) != exchanged) continue;
    time_of(times.of(part_of(microbatch, op, layers)), passes[i]) +=
        exchanged ? rates.with_compute_s(microbatch, i) : rates.time_s(microbatch, i);
  }
  return times;
}

/// By how much compute goes on while each pass of a microbatch lasts, with what it waits for.
PartTimes followed(const Program& microbatch, const execution::PersistentLayout& layout, int layers,
                   const offload::Rates& rates) {
  const execution::Plan plan = offload::make_plan(
      microbatch, layout,
      {.rates = rates, .chains = {true, {}}, .enough_bytes = offload::kUnbounded});
  const offload::Prediction prediction = offload::predict(microbatch, plan, rates);
  PartTimes times = none(layers);
  const std::vector<int> passes = passes_of(microbatch);
  double until_s = 0;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const execution::Step& step = plan.steps[i];
    if (step.what != execution::Step::What::run ||
        plan.queues[static_cast<std::size_t>(step.queue)].lane != execution::Lane::compute)
      continue;
    const double more_s = std::max(0.0, prediction.end_s[i] - until_s);
    until_s += more_s;
    const auto op = static_cast<std::size_t>(step.op);
    if (passes[op] >= 0)
      time_of(times.of(part_of(microbatch, microbatch.ops()[op], layers)), passes[op]) += more_s;
  }
  return times;
}

/// What a stage, or a rank with all of its stages, costs.
struct Burden {
  double time_s = 0;
  double over_bytes = 0;  ///< above a budget
};

/// How good some stages are: less is better.
struct Load {
  double over_bytes = 0;
  double slowest_s = 0;
  double squares = 0;  ///< sum of the squares of all times

  Load operator+(Burden cost) const {
    return {over_bytes + cost.over_bytes, std::max(slowest_s, cost.time_s),
            squares + cost.time_s * cost.time_s};
  }
  friend auto operator<=>(const Load&, const Load&) = default;
};

constexpr double kNone = std::numeric_limits<double>::infinity();

/// What the last of some stages begins with, and how good they all are.
struct Best {
  Load load{kNone, kNone, kNone};
  int begin = 0;
};

/// The search for cuts of a model with these times.
class Cuts {
 public:
  /// @param room outlives this
  Cuts(layers::PipelineShape shape, const PartTimes& times, const DeviceRoom& room)
      : shape_(shape), room_(room), until_s_{times.embedding.all_s()} {
    for (const layers::PassTimes& layer : times.layers)
      until_s_.push_back(until_s_.back() + layer.all_s());
    until_s_.back() += times.head.all_s();
  }

  /// Where each stage ends.
  std::vector<int> find() const {
    std::vector<int> ends = even_stages();
    if (shape_.virtual_stages > 1) even_ranks(ends);
    return ends;
  }

 private:
  /// Loads of ranks, then of stages.
  using Loads = std::pair<Load, Load>;

  int layers() const { return static_cast<int>(until_s_.size()) - 1; }
  double stage_s(int begin, int end) const {
    return until_s_[end] - (begin == 0 ? 0 : until_s_[begin]);
  }

  /// Of layers [begin, end), with what stands at the ends of the model; nothing without a budget.
  PartBytes bytes(int begin, int end) const {
    if (room_.budget_bytes <= 0) return {};
    return stage_bytes(
        {.begin = begin, .end = end, .embedding = begin == 0, .head = end == layers()},
        room_.parts);
  }

  Burden rank_cost(int rank, double time_s, const std::vector<PartBytes>& stages) const {
    const Overflow over = overflow(room_, rank, stages);
    return {std::max(time_s, over.copies_s), over.over_bytes};
  }
  /// Of a stage alone: its rank's memory counts where that has no other.
  Burden stage_cost(int stage, int begin, int end) const {
    const double time_s = stage_s(begin, end);
    if (shape_.virtual_stages > 1) return {time_s};
    return rank_cost(stage, time_s, {bytes(begin, end)});
  }

  /// The best cuts where each stage is a rank's only one: by best[s][end], layers [0, end) in s + 1
  /// stages.
  std::vector<int> even_stages() const {
    const int stages = shape_.stages();
    std::vector<std::vector<Best>> best(static_cast<std::size_t>(stages),
                                        std::vector<Best>(until_s_.size()));
    for (int s = 0; s < stages; ++s)
      for (int end = s + 1; end <= layers(); ++end) {
        Best& at = best[s][end];
        for (int begin = s; begin < (s == 0 ? 1 : end); ++begin) {
          const Load before = s == 0 ? Load{} : best[static_cast<std::size_t>(s) - 1][begin].load;
          if (const Load load = before + stage_cost(s, begin, end); load < at.load)
            at = {load, begin};
        }
      }
    std::vector<int> ends(static_cast<std::size_t>(stages), layers());
    for (std::size_t s = ends.size(); s-- > 1;) ends[s - 1] = best[s][ends[s]].begin;
    return ends;
  }

  Loads loads(const std::vector<int>& ends) const {
    const auto ranks = static_cast<std::size_t>(shape_.ranks);
    std::vector<double> times_s(ranks);
    std::vector<std::vector<PartBytes>> stages(ranks);
    Loads all;
    int begin = 0;
    for (std::size_t s = 0; s < ends.size(); ++s) {
      const double time_s = stage_s(begin, ends[s]);
      times_s[s % ranks] += time_s;
      stages[s % ranks].push_back(bytes(begin, ends[s]));
      all.second = all.second + Burden{time_s};
      begin = ends[s];
    }
    for (std::size_t r = 0; r < ranks; ++r)
      all.first = all.first + rank_cost(static_cast<int>(r), times_s[r], stages[r]);
    return all;
  }

  /// Moves layers over cuts, one at a time, as long as that helps the slowest rank.
  void even_ranks(std::vector<int>& ends) const {
    for (bool better = true; better;) {
      better = false;
      for (std::size_t cut = 0; cut + 1 < ends.size(); ++cut)
        for (const int by : {-1, 1}) {
          std::vector<int> moved = ends;
          moved[cut] += by;
          if (moved[cut] == (cut == 0 ? 0 : moved[cut - 1]) || moved[cut] == moved[cut + 1])
            continue;
          if (loads(moved) < loads(ends)) ends = std::move(moved), better = true;
        }
    }
  }

  layers::PipelineShape shape_;
  const DeviceRoom& room_;
  std::vector<double> until_s_;  ///< of all layers before each end, with what stands at the ends
};

}  // namespace

execution::Program one_microbatch(const layers::Model& model, layers::StepShape shape,
                                  const execution::PersistentLayout& layout, bool weights_apart) {
  shape.microbatches = 1;
  execution::Program program("microbatch", &layout);
  program.begin_section("prologue");
  const execution::Dtype accum = model.precision().accumulation();
  const layers::StackedInputs inputs = add_inputs(program, shape, model);
  const execution::Tensor loss_scale = program.input("loss_scale", accum, {1});
  const execution::Tensor loss = program.output("loss", accum, {2});
  layers::Handles handles;
  std::vector<layers::Pass> passes = {
      {.kind = layers::Pass::Kind::forward},
      {.kind = layers::Pass::Kind::backward, .weights_later = weights_apart}};
  if (weights_apart) passes.push_back({.kind = layers::Pass::Kind::weights});
  layers::PassRecorder(program, model, handles, {shape, inputs, loss_scale, loss})
      .record({{"passes", 1, std::move(passes)}});
  return program;
}

std::vector<int> passes_of(const execution::Program& microbatch) {
  std::vector<int> passes;
  int pass = -1;  // each begins a scope of its own
  int scope = -1;
  for (const Op& op : microbatch.ops()) {
    if (const int at = layers::enclosing(microbatch, op, "microbatch"); at != scope)
      scope = at, ++pass;
    passes.push_back(scope < 0 ? -1 : pass);
  }
  return passes;
}

int part_of(const execution::Program& microbatch, const Op& op, int layers) {
  if (const int layer = layers::enclosing(microbatch, op, "layer"); layer >= 0)
    return std::min(microbatch.scopes()[layer].layer, layers);  // behind them: with the head
  return op.name.starts_with("mb0/embedding/") ? -1 : layers;
}

PredictedParts predict_parts(const layers::ModelConfig& config, layers::Precision precision,
                             const layers::StepShape& shape, const parallel::Ranks& ranks,
                             const offload::Rates& rates) {
  const layers::Model model(config, precision, 1, ranks);
  const execution::PersistentLayout layout =
      lay_out_state(model.parameters(), model.states(), precision, {});
  const PartTimes compute =
      summed(one_microbatch(model, shape, layout), config.layers(), rates, false);
  const execution::Program whole = one_microbatch(model, shape, layout, false);
  if (std::ranges::none_of(whole.ops(), communicates))
    return {compute, compute, none(config.layers())};
  PartTimes times = followed(whole, layout, config.layers(), rates);
  for (int part = -1; part <= config.layers(); ++part) {
    layers::PassTimes& of_part = times.of(part);
    of_part.weights_s = compute.of(part).weights_s;
    of_part.backward_s = std::max(0.0, of_part.backward_s - of_part.weights_s);
  }
  return {std::move(times), compute, summed(whole, config.layers(), rates, true)};
}

std::vector<layers::PassTimes> stage_times(const std::vector<layers::Stage>& stages,
                                           const PartTimes& times) {
  std::vector<layers::PassTimes> all;
  for (const layers::Stage& stage : stages) {
    layers::PassTimes& sum = all.emplace_back();
    if (stage.embedding) sum += times.embedding;
    for (int i = stage.begin; i < stage.end; ++i) sum += times.layers[i];
    if (stage.head) sum += times.head;
  }
  return all;
}

std::string balanced_cuts(const std::string& pattern, layers::PipelineShape shape,
                          const PartTimes& times, const DeviceRoom& room) {
  const auto layers = static_cast<int>(pattern.size());
  if (layers < shape.stages()) layers::throw_too_few_layers(pattern, layers, shape.stages());
  const std::vector<int> ends = Cuts(shape, times, room).find();
  std::string cut = pattern;
  for (std::size_t s = ends.size() - 1; s-- > 0;)
    cut.insert(static_cast<std::size_t>(ends[s]), 1, '|');
  return cut;
}

}  // namespace stowage::forecast
