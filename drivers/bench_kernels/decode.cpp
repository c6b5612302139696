#include <algorithm>
#include <deque>
#include <type_traits>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"
#include "kernels/decode/attention_step.hpp"
#include "kernels/decode/conv1d_step.hpp"
#include "kernels/decode/gated_delta_step.hpp"
#include "kernels/decode/ssd_step.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::Spec;

/// One more token of each of B sequences, at the last position of a window W. Compared with the
/// reference is the first sequence.
template <class Op>
class StepCase : public OperatorCase<Op> {
 public:
  StepCase(run::Gpu& gpu, const Op& op, std::int64_t seed, std::int64_t position)
      : OperatorCase<Op>(gpu, op, seed),
        one_(op),
        positions_(static_cast<std::size_t>(op.sequences), static_cast<std::int32_t>(position)) {
    one_.sequences = 1;
    one_.storage = Dtype::fp64;
    this->o_.positions->upload(positions_.data());
    one_.each(
        [&](const Spec& spec, const auto& operand, auto& pointer) { keep(spec, operand, pointer); },
        this->o_, first_);
  }
  std::vector<Agreement> check(const std::string&) override {
    on_host([&] { one_.template reference<double>(first_); });
    std::vector<Agreement> agreements;
    for (const Stored& stored : stored_) {
      const Operand& ours = *stored.operand;
      const double epsilon = execution::epsilon(ours.dtype());
      agreements.push_back({ours.name(), relative_error(ours.rows(0, 1), *stored.values),
                            ours.dtype() == Dtype::bf16 ? 2 * epsilon : 16 * epsilon, false,
                            some_of(1, this->op_.sequences, "sequences")});
    }
    return agreements;
  }

 private:
  /// What the reference leaves of an operand.
  struct Stored {
    const Operand* operand;
    const std::vector<double>* values;
  };

  /// The values of the first sequence, before anything has run.
  double* values(const Spec& spec, const Operand& operand) {
    std::vector<double>& kept = memory_.emplace_back(operand.rows(0, spec.shape.front()));
    if (spec.access != execution::Access::read) stored_.push_back({&operand, &kept});
    return kept.data();
  }
  template <class T>
  void keep(const Spec& spec, const Operand* operand, T*& pointer) {
    if (operand == nullptr || spec.workspace) return;
    if constexpr (std::is_same_v<T, const std::int32_t>)
      pointer = positions_.data();
    else
      pointer = values(spec, *operand);
  }
  void keep(const Spec& spec, const kernels::ColumnsOf<Operand*>& operand,
            kernels::Matrix<const double>& matrix) {
    matrix = {values(spec, *operand.whole), 1, operand.count, operand.count};
  }

  Op one_;
  std::vector<std::int32_t> positions_;
  std::deque<std::vector<double>> memory_;
  std::vector<Stored> stored_;
  kernels::OperandsOf<Op, kernels::Pointers<double>> first_ = {};
};

constexpr std::int64_t kLater = 100;  ///< a position at which states are read

struct Conv1dStep final : StepCase<kernels::Conv1dStep> {
  Conv1dStep(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : StepCase(gpu,
                 {.sequences = shape["B"],
                  .channels = shape["C"],
                  .width = shape["W"],
                  .storage = Dtype::bf16},
                 seed, kLater) {}
};

struct SsdStep final : StepCase<kernels::SsdStep> {
  SsdStep(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : StepCase(gpu,
                 {.shape = {.heads = shape["H"],
                            .head_dim = shape["P"],
                            .groups = shape["G"],
                            .state = shape["N"]},
                  .sequences = shape["B"],
                  .storage = Dtype::bf16},
                 seed, kLater) {}
};

struct GatedDeltaStep final : StepCase<kernels::GatedDeltaStep> {
  GatedDeltaStep(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : StepCase(gpu,
                 {.shape = {.key_heads = shape["K"],
                            .value_heads = shape["H"],
                            .key_dim = shape["N"],
                            .value_dim = shape["P"]},
                  .sequences = shape["B"],
                  .storage = Dtype::bf16},
                 seed, kLater) {}
};

struct AttentionStep final : StepCase<kernels::AttentionStep> {
  AttentionStep(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : StepCase(gpu,
                 {.shape = {.heads = shape["H"],
                            .kv_heads = shape["K"],
                            .head_dim = shape["P"],
                            .window = shape["W"],
                            .scale = 0.1},
                  .sequences = shape["B"],
                  .storage = Dtype::bf16},
                 seed, shape["W"] - 1) {}
};

}  // namespace

std::vector<Entry> decode_entries() {
  return {operator_entry<Conv1dStep>("conv1d_step",
                                     "one more token of B convolutions of C channels, bf16",
                                     {Shape{{"B", 64}, {"C", 6144}, {"W", 4}}}),
          operator_entry<SsdStep>("ssd_step",
                                  "one more token of B scans, bf16, states (B, H, P, N) in fp32",
                                  {Shape{{"B", 64}, {"H", 64}, {"P", 64}, {"G", 8}, {"N", 128}}}),
          operator_entry<GatedDeltaStep>(
              "gated_delta_step",
              "one more token of B gated delta rules, bf16, states (B, H, P, N) in fp32",
              {Shape{{"B", 64}, {"K", 16}, {"H", 32}, {"N", 128}, {"P", 128}}}),
          operator_entry<AttentionStep>(
              "attention_step",
              "one query of B sequences over bf16 caches of W keys and values of K heads",
              {Shape{{"B", 16}, {"H", 16}, {"K", 4}, {"P", 128}, {"W", 8192}},
               Shape{{"B", 1}, {"H", 16}, {"K", 4}, {"P", 128}, {"W", 65536}}})};
}

}  // namespace stowage::drivers::bench
