#include "layers/step/update.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/step_sums/step_sums.hpp"
#include "layers/state/state.hpp"
#include "layers/step/between_steps.hpp"
#include "layers/step/ema.hpp"
#include "layers/step/parameter_factors.hpp"
#include "layers/step/update_norms.hpp"

namespace stowage::layers {

using execution::Dtype;
using execution::Range;

Update::Update(Recorder& recorder, const Model& model, const Optimizer& rule,
               const OptimizerConfig& optimizer, const execution::PersistentLayout& layout,
               const Sharing& sharing, std::vector<Tensor> values)
    : recorder_(recorder),
      model_(model),
      rule_(rule),
      optimizer_(optimizer),
      layout_(layout),
      sharing_(sharing),
      values_(std::move(values)),
      shares_squares_(shares_gradients(sharing)) {
  recorder_.set_prefix("optimizer");
  part_blocks_.assign(static_cast<std::size_t>(model.config().layers()) + 2, {0, 0});
  for (Parameter& parameter : model.whole_parameters()) {
    if (factor_of(parameter.name, optimizer.lr_factors, 1) == 0) continue;  // frozen
    Range& part =
        part_blocks_[static_cast<std::size_t>(std::int64_t{1} + model.part_of(parameter.name))];
    const std::int64_t blocks = kernels::norm_blocks(parameter.elements());
    const std::string kept = state_name(rule_.of(parameter).states.front(), parameter.name);
    const Range held = layout_.is_part(kept) ? layout_.held(kept) : Range{0, 0};
    if (held.begin < held.end) {
      const Range squared = this->squared(model, parameter, held);
      const Range copies = parameter.repeat.copy > 0 ? parameter.repeated() : Range{0, 0};
      pieces_.push_back({std::move(parameter), held, squared, copies, blocks_});
    }
    if (part.begin == part.end) part.begin = blocks_;
    part.end = blocks_ += blocks;
  }
  has_master_ = !pieces_.empty() && layout_.is_part(master_name(pieces_.front().parameter.name));
  if (sharing_.ranks.size() > 1) {
    values_count_ = kernels::kStepFlags;
    for (const Tensor value : values_)
      values_count_ += recorder_.program().info(value).buffers.front().elements();
  }
  sums_ = recorder_.scratch("sums", Dtype::fp64, {blocks_ + values_count_});
}

/// One of the ranks that hold the same elements adds up their squares.
Range Update::squared(const Model& model, const Parameter& parameter, Range held) const {
  const bool of_first_stage = model.shares_embedding() && !model.has_embedding() &&
                              parameter.name == model.embedding().name;
  const bool of_other_holder =
      shares_squares_ && !sharing_.zero && sharing_.holders(parameter.group).rank() > 0;
  return of_first_stage || of_other_holder ? Range{0, 0} : held;
}

Tensor Update::state(const std::string& name) const {
  return recorder_.program().add(layout_.info(name));
}

void Update::record_squares() {
  record_squares([&](const Piece& piece) {
    return SomeRows{state(gradient_name(piece.parameter.name)), piece.squared};
  });
}

void Update::record_squares(const std::function<SomeRows(const Piece&)>& of) {
  ParameterUpdate all{"squares", recorder_, optimizer_, {},      {},      {},
                      {},        false,     model_,     layout_, sharing_};
  std::map<std::string, const Piece*> pieces;
  for (const Piece& piece : pieces_) {
    if (piece.squared.begin == piece.squared.end) continue;
    ParameterUpdate::One one;
    one.name = piece.parameter.name;
    one.gradient = of(piece);
    one.elements = piece.squared.end - piece.squared.begin;
    one.index.first = piece.squared.begin;
    all.parameters.push_back(one);
    pieces[one.name] = &piece;
  }
  std::vector<ParameterUpdate> windows = all.windows();
  if (windows.empty()) windows.push_back(all);  // all ranks have the op
  const Range squares{0, blocks_};
  const bool shared = shares_squares_ || windows.size() != 1;
  if (shared)  // what other ranks and windows add
    recorder_.clear("clear_squares", {sums_, Access::write, squares},
                    kernels::fill_cost(blocks_, Dtype::fp64));
  for (const ParameterUpdate& window : windows) {
    kernels::NormPartials partials{
        .pieces = {}, .slots = blocks_, .storage = recorder_.storage(), .shared = shared};
    kernels::NormPartials::Operands<Tensor> operands{.partials = {sums_, squares}, .gradients = {}};
    for (const ParameterUpdate::One& one : window.parameters) {
      const Piece& piece = *pieces.at(one.name);
      partials.pieces.push_back({.first = one.index.first,
                                 .elements = one.elements,
                                 .slot = piece.first_block,
                                 .left_out = piece.left_out});
      partials.gradient_type = recorder_.buffer(one.gradient.whole).dtype;
      operands.gradients.push_back({one.gradient});
    }
    recorder_.compute(window.name, partials, operands);
  }
}

void Update::record_sums(Tensor step_ok) {
  if (sharing_.ranks.size() == 1) return;
  const Range values{blocks_, blocks_ + values_count_};
  kernels::GatherSums gather{.elements = {}, .storage = recorder_.storage()};
  kernels::GatherSums::Operands<Tensor> from{
      .step_ok = step_ok, .sums = {sums_, values}, .values = {}};
  kernels::SpreadSums::Operands<Tensor> to{
      .step_ok = step_ok, .sums = {sums_, values}, .values = {}};
  for (const Tensor value : values_) {
    gather.elements.each.push_back(recorder_.buffer(value).elements());
    from.values.push_back({value});
    to.values.push_back({value});
  }
  recorder_.compute("gather_sums", gather, from);
  const parallel::RankGroup& world = sharing_.ranks.group(parallel::Group::world);
  Program& program = recorder_.program();
  program.append(world.all_reduce(program, "all_reduce/sums",
                                  {sums_, shares_squares_ ? Range{} : values},
                                  parallel::Reduction::sum));
  recorder_.compute("spread_sums", kernels::SpreadSums{gather.elements, gather.storage}, to);
}

void Update::record_norm(Tensor grad_norm, Tensor step_ok) {
  recorder_.compute("norm", kernels::NormFinish{blocks_, recorder_.storage()},
                    {.partials = {sums_, {0, blocks_}}, .norm = grad_norm, .step_ok = step_ok});
}

void Update::record_norms_of_parts() { record_norms_of_parts(kGradientNorms); }

void Update::record_norms_of_parts(const char* output) {
  const auto parts = static_cast<std::int64_t>(part_blocks_.size());
  const Dtype accum = recorder_.accumulation();
  const Tensor norms = recorder_.program().output(output, accum, {parts});
  const Tensor ok = recorder_.program().scratch("part_ok", Dtype::int32, {1});
  for (std::int64_t i = 0; i < parts; ++i) {
    const Range blocks = part_blocks_[static_cast<std::size_t>(i)], one{i, i + 1};
    const std::string name = fmt::format("part_norm/{}", i);
    if (blocks.begin == blocks.end)
      recorder_.clear(name, {norms, Access::write, one});
    else
      recorder_.compute(name,
                        kernels::NormFinish{blocks.end - blocks.begin, recorder_.storage(), false},
                        {.partials = {sums_, blocks}, .norm = {norms, one}, .step_ok = ok});
  }
}

void Update::record_weight_norms() {
  record_squares([&](const Piece& piece) {
    const Parameter& p = piece.parameter;
    return has_master_ ? SomeRows{state(master_name(p.name))}
                       : SomeRows{recorder_.parameter(p), piece.squared};
  });
  Program& program = recorder_.program();
  if (shares_squares_ && sharing_.ranks.size() > 1)
    program.append(sharing_.ranks.group(parallel::Group::world)
                       .all_reduce(program, "all_reduce/squares", {sums_, {0, blocks_}},
                                   parallel::Reduction::sum));
  record_norms_of_parts(kWeightNorms);
}

void Update::record_guard(const kernels::SpikeRule& rule, const TrainingProgram& step) {
  const bool has_running = layout_.has(kRunningNorm);
  recorder_.compute("guard", kernels::GuardStep{rule, recorder_.storage(), has_running},
                    {.attempt = step.attempt,
                     .norm = step.grad_norm,
                     .good_steps = state(kGoodSteps),
                     .step_ok = step.step_ok,
                     .running = has_running ? state(kRunningNorm) : Tensor{}});
}

void Update::record_update(const TrainingProgram& step) {
  const Tensor good_steps = state(kGoodSteps);
  std::optional<UpdateNorms> norms;
  if (step.asked) {
    norms.emplace(recorder_, step.asked, sums_, blocks_);
    for (const Piece& piece : pieces_)
      if (piece.squared.begin < piece.squared.end)
        norms->add(piece.parameter.name, piece.squared.end - piece.squared.begin, piece.first_block,
                   piece.left_out);
  }
  const auto of = [&](const Optimizer& rule) {
    ParameterUpdate update{
        std::string(rule.name), recorder_,   optimizer_, step.schedule, good_steps, step.grad_norm,
        step.step_ok,           has_master_, model_,     layout_,       sharing_};
    if (norms) update.norms = &*norms;
    for (const Piece& piece : pieces_)
      if (&rule_.of(piece.parameter) == &rule) update.parameters.push_back(all_of(piece));
    return update;
  };
  const auto record_windows = [&](const Optimizer& rule) { of(rule).write_weights(rule.record); };
  if (rule_.whole_matrices) {
    ParameterUpdate update = of(rule_);
    update.other_rule = [&] {
      if (rule_.otherwise != nullptr) record_windows(*rule_.otherwise);
    };
    rule_.record(update);
  } else {
    record_windows(rule_);
  }
  if (norms) norms->finish(part_blocks_);
  record_ema(recorder_, model_, optimizer_, layout_, sharing_, step.step_ok);
  recorder_.compute("advance", kernels::Advance{}, {.step = good_steps, .step_ok = step.step_ok});
}

bool ParameterUpdate::on_host(const One& one) const {
  const auto there = [&](const SomeRows& of) {
    return of.whole && layout.on_host(recorder.program().info(of.whole).name);
  };
  return there(one.parameter) || there(one.gradient) || there(one.master) ||
         std::ranges::any_of(one.states, there);
}

std::vector<ParameterUpdate> ParameterUpdate::windows(std::int64_t most) const {
  std::vector<ParameterUpdate> all;
  ParameterUpdate resident = *this, window = *this;
  resident.parameters.clear();
  window.parameters.clear();
  std::int64_t filled = 0;
  const auto close = [&] {
    if (filled == 0) return;
    window.name = fmt::format("{}/{}", name, all.size());
    all.push_back(window);
    window.parameters.clear();
    filled = 0;
  };
  const auto cut = [&](const One& one, std::int64_t limit) {
    for (std::int64_t begin = 0, end = 0; begin < one.elements; begin = end) {
      end = std::min(one.elements, begin + limit - filled);
      window.parameters.push_back(one.some(begin, end));
      filled += execution::kBucketGrain * ((end - begin - 1) / execution::kBucketGrain + 1);
      if (filled >= limit) close();
    }
  };
  for (const One& one : parameters)
    if (on_host(one)) cut(one, config.window_elements);
  close();
  for (const One& one : parameters) {
    if (on_host(one)) continue;
    if (most > 0)
      cut(one, most);
    else
      resident.parameters.push_back(one);
  }
  close();
  if (!resident.parameters.empty()) all.push_back(std::move(resident));
  return all;
}

void ParameterUpdate::write_weights(
    const std::function<void(const ParameterUpdate& window)>& record) const {
  for (const ParameterUpdate& window : windows(norms ? norms->window_elements(config) : 0)) {
    if (norms) norms->keep(window);
    record(window);
    if (norms) norms->square(window);
  }
}

ParameterUpdate::One ParameterUpdate::One::some(std::int64_t begin, std::int64_t end) const {
  if (begin == 0 && end == elements) return *this;
  One part = *this;
  const auto cut = [&](SomeRows& of) {
    const std::int64_t first = of.rows == Range{} ? 0 : of.rows.begin;
    if (of.whole) of.rows = {first + begin, first + end};
  };
  for (SomeRows* of : {&part.parameter, &part.gradient, &part.master}) cut(*of);
  for (SomeRows& of : part.states) cut(of);
  part.index.first += begin;
  part.elements = end - begin;
  return part;
}

ParameterUpdate::One Update::all_of(const Piece& piece) const {
  const Parameter& p = piece.parameter;
  ParameterUpdate::One one;
  one.name = p.name;
  one.parameter = {recorder_.parameter(p), piece.held};
  if (has_master_) one.master = {state(master_name(p.name)), {}};
  one.gradient = {state(gradient_name(p.name)), piece.held};
  for (const std::string_view what : rule_.of(p).states)
    one.states.push_back({state(state_name(what, p.name)), {}});
  one.elements = piece.held.end - piece.held.begin;
  one.index = p.index();
  one.index.first = piece.held.begin;
  one.decay = factor_of(p.name, optimizer_.decay_factors, p.decay ? 1 : 0);
  one.lr = factor_of(p.name, optimizer_.lr_factors, 1);
  return one;
}

}  // namespace stowage::layers
