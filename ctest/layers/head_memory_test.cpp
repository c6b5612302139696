// The logits of all tokens exist nowhere: in a whole step's program, and so in its plan, no tensor
// is as large as tokens x vocabulary elements of storage. Those of a chunk of tokens lie where the
// embedding's gradient will be, if that has room and is not there yet.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "forecast/plan/trainer_plan.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

// One layer with the head of a standard deck, in training and in evaluation.
forecast::TrainerOptions options_of(std::int64_t tokens, std::int64_t vocabulary,
                                    std::int64_t width) {
  forecast::TrainerOptions options = tiny_options("-", Dtype::bf16);
  options.model.width = width;
  options.model.vocabulary = vocabulary;
  options.step.tokens = options.step.sequence = tokens;
  options.evaluation_microbatches = 1;
  return options;
}

// Bytes of the largest tensor that lives within a step.
std::size_t largest_transient(const layers::Program& program) {
  std::size_t most = 0;
  for (const execution::TensorInfo& info : program.tensors()) {
    if (execution::is_persistent(info.lifetime)) continue;
    std::size_t bytes = 0;
    for (const execution::BufferInfo& buffer : info.buffers) bytes += buffer.bytes();
    most = std::max(most, bytes);
  }
  return most;
}

struct Head {
  std::int64_t tokens, vocabulary, width;
};
// hybrid-moe-2b and hybrid-dense-1b, dense-124m, nemotron-nano-30b.
constexpr Head kHeads[] = {{16384, 65536, 2048}, {65536, 50304, 768}, {8192, 131072, 2688}};

TEST(head_memory, no_tensor_holds_the_logits_of_all_tokens) {
  for (const Head& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.tokens << " tokens of " << head.vocabulary);
    const forecast::TrainerPlan plan(options_of(head.tokens, head.vocabulary, head.width));
    const auto logits = static_cast<std::size_t>(head.tokens * head.vocabulary) *
                        execution::size_bytes(Dtype::bf16);
    for (const auto& training : plan.training())
      EXPECT_LT(largest_transient(training->recorded.program), logits / 2);
    for (const auto& evaluation : plan.evaluation())
      EXPECT_LT(largest_transient(evaluation->recorded.program), logits / 2);
    // Not in pieces either: all that lives within a step is less.
    EXPECT_LT(plan.transient_bytes(), logits);
    EXPECT_FALSE(plan.evaluation().empty());
  }
}

// Where the head's op of a microbatch works: "persistent", among gradients, or "transient".
std::string_view room(const forecast::TrainerOptions& options, int slot = 0) {
  const forecast::TrainerPlan trainer(options);
  const layers::Program& program = trainer.training().front()->recorded.program;
  const execution::Plan& plan = trainer.training().front()->plan;
  for (const execution::Step& step : plan.steps)
    if (step.op >= 0 &&
        program.ops()[step.op].name == fmt::format("mb{}/head/loss_and_gradients", slot))
      return name(plan.places[step.places.back()].region);
  return "no such op";
}

TEST(head_memory, logits_lie_where_a_gradient_is_written_later) {
  const forecast::TrainerOptions wide = options_of(16384, 65536, 2048);
  EXPECT_EQ(room(wide), "persistent");
  const forecast::TrainerOptions narrow = options_of(65536, 50304, 768);
  EXPECT_EQ(room(narrow), "transient") << "not enough room";
  forecast::TrainerOptions tied = wide;
  tied.model.tied_embeddings = true;
  EXPECT_EQ(room(tied), "transient") << "it is the head's own gradient";
  forecast::TrainerOptions several = wide;
  several.step.microbatches = 2;
  EXPECT_EQ(room(several), "persistent");
  EXPECT_EQ(room(several, 2), "transient") << "the gradient is added to";
}

}  // namespace
}  // namespace stowage::ctest
