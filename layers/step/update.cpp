#include "layers/step/update.hpp"

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/step_sums/step_sums.hpp"
#include "layers/state/state.hpp"

namespace stowage::layers {

using execution::Dtype;
using execution::Range;
using execution::View;
using Views = std::span<const View>;

Update::Update(Recorder& recorder, const Model& model, const execution::PersistentLayout& layout,
               const Sharing& sharing, std::vector<Tensor> values)
    : recorder_(recorder),
      layout_(layout),
      sharing_(sharing),
      values_(std::move(values)),
      has_master_(model.precision().has_master()),
      shares_squares_(sharing.zero || !sharing.ranks.whole_model()) {
  recorder_.set_prefix("optimizer");
  for (Parameter& parameter : model.whole_parameters()) {
    const std::int64_t blocks = kernels::norm_blocks(parameter.elements());
    const std::string moment = first_moment_name(parameter.name);
    const Range held = layout_.is_part(moment) ? layout_.held(moment) : Range{0, 0};
    if (held.begin < held.end) {
      const Range squared = this->squared(model, parameter, held);
      const Range copies = parameter.repeat.copy > 0 ? parameter.repeated() : Range{0, 0};
      pieces_.push_back({std::move(parameter), held, squared, copies, blocks_});
    }
    blocks_ += blocks;
  }
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

std::int64_t Update::elements(Range Piece::*part) const {
  std::int64_t sum = 0;
  for (const Piece& piece : pieces_) sum += (piece.*part).end - (piece.*part).begin;
  return sum;
}

void Update::record_squares() {
  const Range squares{0, blocks_};
  if (shares_squares_)  // what other ranks add
    recorder_.clear("clear_squares", {sums_, Access::write, squares},
                    kernels::fill_cost(blocks_, Dtype::fp64));
  std::vector<Use> uses = {{sums_, shares_squares_ ? Access::update : Access::write, squares}};
  std::vector<kernels::NormPiece> pieces;
  for (const Piece& piece : pieces_) {
    if (piece.squared.begin == piece.squared.end) continue;
    uses.push_back({recorder_.gradient(piece.parameter), Access::read, piece.squared});
    pieces.push_back({.gradient = {},
                      .first = piece.squared.begin,
                      .elements = piece.squared.end - piece.squared.begin,
                      .slot = piece.first_block,
                      .left_out = piece.left_out});
  }
  recorder_.compute(
      "squares", kernels::norm_partials_cost(elements(&Piece::squared), recorder_.accumulation()),
      std::move(uses), [pieces](execution::Queue& q, Views v) {
        std::vector<kernels::NormPiece> bound = pieces;
        for (std::size_t i = 0; i < bound.size(); ++i) bound[i].gradient = v[i + 1];
        kernels::norm_partials(q, bound, v[0]);
      });
}

void Update::record_sums(Tensor step_ok) {
  if (sharing_.ranks.size() == 1) return;
  const Range values{blocks_, blocks_ + values_count_};
  const std::int64_t count = values_count_;
  const Cost cost = kernels::step_sums_cost(count);
  std::vector<Use> from = {read(step_ok), {sums_, Access::write, values}};
  std::vector<Use> to = {write(step_ok), {sums_, Access::read, values}};
  for (const Tensor value : values_) {
    from.push_back(read(value));
    to.push_back(write(value));
  }
  recorder_.compute("gather_sums", cost, std::move(from), [count](execution::Queue& q, Views v) {
    kernels::gather_sums(q, v.subspan(2), v[0], v[1], count);
  });
  const parallel::RankGroup& world = sharing_.ranks.group(parallel::Group::world);
  Program& program = recorder_.program();
  program.append(world.all_reduce(program, "all_reduce/sums",
                                  {sums_, shares_squares_ ? Range{} : values},
                                  parallel::Reduction::sum));
  recorder_.compute("spread_sums", cost, std::move(to), [count](execution::Queue& q, Views v) {
    kernels::spread_sums(q, v[1], count, v.subspan(2), v[0]);
  });
}

void Update::record_norm(Tensor grad_norm, Tensor step_ok) {
  recorder_.compute(
      "norm", kernels::norm_finish_cost(blocks_),
      {{sums_, Access::read, {0, blocks_}}, write(grad_norm), update(step_ok)},
      [](execution::Queue& q, Views v) { kernels::norm_finish(q, v[0], v[1], v[2]); });
}

void Update::record_guard(const kernels::SpikeRule& rule, const TrainingProgram& step) {
  std::vector<Use> uses = {read(step.attempt), read(step.grad_norm), read(state(kGoodSteps)),
                           update(step.step_ok)};
  if (layout_.has(kRunningNorm)) uses.push_back(update(state(kRunningNorm)));
  recorder_.compute("guard", {}, std::move(uses), [rule](execution::Queue& q, Views v) {
    kernels::guard_step(q, v[0], v[1], v[2], v.size() > 4 ? v[4] : View{}, v[3], rule);
  });
}

void Update::record_adamw(const OptimizerConfig& optimizer, const TrainingProgram& step) {
  const Tensor good_steps = state(kGoodSteps);
  std::vector<Use> uses = {read(step.schedule), read(good_steps), read(step.grad_norm),
                           read(step.step_ok)};
  std::vector<kernels::AdamwTensor> tensors;
  for (const auto& [p, held, squared, left_out, block] : pieces_) {
    uses.push_back({recorder_.parameter(p), Access::update, held});
    if (has_master_) uses.push_back(update(state(master_name(p.name))));
    uses.push_back({recorder_.gradient(p), Access::read, held});
    uses.push_back(update(state(first_moment_name(p.name))));
    uses.push_back(update(state(second_moment_name(p.name))));
    kernels::AdamwTensor& tensor = tensors.emplace_back();
    tensor.elements = held.end - held.begin;
    tensor.decay = p.decay;
  }
  const kernels::AdamwOptions options{optimizer.beta1, optimizer.beta2, optimizer.epsilon};
  recorder_.compute("adamw",
                    kernels::adamw_cost(elements(&Piece::held), recorder_.storage(), has_master_),
                    std::move(uses),
                    [tensors, has_master = has_master_, options, clip = optimizer.clip](
                        execution::Queue& q, Views v) {
                      std::vector<kernels::AdamwTensor> bound = tensors;
                      std::size_t at = 4;
                      for (kernels::AdamwTensor& t : bound) {
                        t.parameter = v[at++];
                        if (has_master) t.master = v[at++];
                        t.gradient = v[at++];
                        t.m = v[at++];
                        t.v = v[at++];
                      }
                      kernels::adamw(q, bound, v[0], v[1], v[2], clip, v[3], options);
                    });
  recorder_.compute("advance", {}, {update(good_steps), read(step.step_ok)},
                    [](execution::Queue& q, Views v) { kernels::advance(q, v[0], v[1]); });
}

}  // namespace stowage::layers
