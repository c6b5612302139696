#include "tiny_loop.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "execution/observer.hpp"
#include "forecast/plan/options.hpp"
#include "layers/step/step_section.hpp"

namespace stowage::run {

/// Spoils a gradient behind the last op that writes it.
class TinyLoop::Spoiler final : public execution::Observer {
 public:
  explicit Spoiler(Trainer& trainer) {
    const forecast::TrainerPlan& plan = trainer.plan();
    const std::string gradient = layers::gradient_name(plan.model().parameters().back().name);
    element_ = reinterpret_cast<float*>(trainer.device().address(plan.layout().place(gradient)));
    const auto& training = *plan.training().front();
    const auto& ops = training.recorded.program.ops();
    for (std::size_t i = 0; i < training.plan.steps.size(); ++i) {
      const execution::Step& step = training.plan.steps[i];
      if (step.op < 0) continue;
      const execution::Op& op = ops[step.op];
      for (const execution::Use& use : op.uses)
        if (!op.communication && use.access != execution::Access::read &&
            training.recorded.program.info(use.tensor).name == gradient)
          last_ = static_cast<int>(i);
    }
    EXPECT_GE(last_, 0) << gradient;
    for (execution::Executor* executor : trainer.executors()) executor->add(*this);
  }

  void before(int, execution::Queue&) override {}
  void after(int index, execution::Queue& queue) override {
    if (index == last_ && spoils) queue.enqueue([element = element_] { *element = 1e5F; });
  }

  bool spoils = false;

 private:
  float* element_;
  int last_ = -1;
};

TinyLoop::~TinyLoop() = default;

void TinyLoop::spoil_gradient(bool spoiled) {
  if (!spoiler_) spoiler_ = std::make_unique<Spoiler>(*trainer_);
  spoiler_->spoils = spoiled;
}

void WrongTokens::read(std::int64_t first, std::span<std::int32_t> out) const {
  constexpr std::int32_t kToken = 5;
  right_->read(first, out);
  if (wrong) std::ranges::fill(out, kToken);
}

TinyLoop::TinyLoop(const std::vector<std::string>& overrides, Loop::Bad bad,
                   const parallel::Ranks& ranks)
    : deck_(inputs::Deck::load(STOWAGE_SOURCE "/ctest/drivers/tiny.toml", overrides)),
      backend_(execution::make_host_backend()),
      data_(open_data(deck_, ranks.sequences().index, ranks.sequences().parts)) {
  auto source = std::make_unique<WrongTokens>(std::move(data_.sources.front().tokens));
  tokens_ = source.get();
  const auto batch = deck_.get<std::int64_t>("train.global_batch_size");
  const parallel::SequencePart part = ranks.sequences();
  const inputs::LoaderOptions options{
      .sequences = {.seq_length = deck_.get<std::int64_t>("train.seq_length")},
      .micro_batch_size = 1,
      .global_batch_size = batch,
      .rank = part.index,
      .ranks = part.parts,
      .seed = 7};
  data_.train =
      std::make_unique<inputs::Loader>(*source, inputs::TokenRange{0, source->tokens()}, options);
  data_.held_out.clear();
  data_.sources.front().tokens = std::move(source);
  const forecast::TrainerOptions trained =
      forecast::trainer_options(deck_, {.capacities = {data_.train->max_documents()}},
                                data_.train->microbatches(), ranks, parallel::RankOrder::partial);
  trainer_ = std::make_unique<Trainer>(std::make_unique<forecast::TrainerPlan>(trained), *backend_);
  loop_ =
      std::make_unique<Loop>(*trainer_, data_, inputs::read<layers::LearningRate>(deck_), 0.1, bad);
}

void TinyLoop::issue(bool wrong) {
  tokens_->wrong = wrong;
  note(loop_->issue(next_++));
}

void TinyLoop::drain(bool wrong) {
  tokens_->wrong = wrong;
  note(loop_->drain());
}

void TinyLoop::issue_right(int count) {
  for (int i = 0; i < count; ++i) issue(false);
}

std::vector<std::vector<std::byte>> TinyLoop::state() {
  const execution::PersistentLayout& layout = trainer_->plan().layout();
  std::vector<std::vector<std::byte>> all;
  for (const execution::Bucket& bucket : layout.buckets())
    for (const std::string& name : bucket.tensors) {
      if (!layout.has(name)) continue;  // another rank's shard
      if (layout.info(name).lifetime == execution::Lifetime::gradient) continue;
      all.emplace_back(layout.info(name).bytes());
      trainer_->device().read(name, all.back());
    }
  return all;
}

float TinyLoop::put(const std::string& name, float value) {
  float before = 0;
  trainer_->device().read(name, std::as_writable_bytes(std::span(&before, 1)));
  trainer_->device().write(name, std::as_bytes(std::span(&value, 1)));
  return before;
}

void TinyLoop::note(const std::optional<StepReport>& report) {
  if (report) reports.push_back(*report);
}

}  // namespace stowage::run
