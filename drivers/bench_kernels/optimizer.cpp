#include <cmath>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/newton_schulz.hpp"
#include "kernels/optimizer/stochastic_rounding.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr double kClip = 1.0;
constexpr std::int64_t kChecked = 8192;  // of the first tensor; the others go the same way

/// P parameters in equal tensors: gradients, the norm and the step word.
class OptimizerCase : public Case {
 protected:
  OptimizerCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed, Dtype gradients = Dtype::fp32)
      : gpu_(gpu),
        seed_(seed),
        tensors_(shape["tensors"]),
        each_(shape["P"] / tensors_),
        gradient_(gpu, "gradient", Role::input, gradients, {tensors_, each_}),
        norm_(gpu, "norm", Role::output, Dtype::fp32, {1}),
        step_ok_(gpu, "step_ok", Role::input, Dtype::int32, {1}) {
    gradient_.fill_normal(seed, 0, 1e-3);
    const std::int32_t ok = 1;
    step_ok_.upload(&ok);
    operands = {&gradient_, &norm_, &step_ok_};
  }

  /// Tensor i of an operand (tensors, P / tensors).
  Bound tensor(const Operand& operand, std::int64_t i) const {
    const auto bytes = operand.bytes() / static_cast<std::size_t>(tensors_);
    return {operand.name(),
            operand.dtype(),
            {each_},
            operand.as<std::byte>() + static_cast<std::size_t>(i) * bytes};
  }

  run::Gpu& gpu_;
  std::int64_t seed_, tensors_, each_;
  Operand gradient_, norm_, step_ok_;
};

class GlobalNormCase final : public OptimizerCase {
 public:
  GlobalNormCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OptimizerCase(gpu, shape, seed),
        partials_(gpu, "partials", Role::workspace, Dtype::fp64,
                  {tensors_ * kernels::norm_blocks(each_)}),
        op_{.pieces = {}, .slots = partials_.elements(), .storage = Dtype::fp32},
        bound_{Bound(norm_), Bound(step_ok_), Bound(partials_)},
        views_{.partials = bound_[2].view(), .gradients = {}} {
    for (std::int64_t i = 0; i < tensors_; ++i) gradients_.push_back(tensor(gradient_, i));
    for (const Bound& gradient : gradients_) {
      const auto before = static_cast<std::int64_t>(op_.pieces.size());
      op_.pieces.push_back({.elements = each_, .slot = before * kernels::norm_blocks(each_)});
      views_.gradients.push_back({gradient.view()});
    }
  }

  execution::Cost cost() const override { return op_.cost(); }
  void enqueue(const std::string&, execution::Queue& queue) override {
    op_.run(queue, views_);
    kernels::NormFinish{op_.slots, op_.storage}.run(
        queue, {.partials = bound_[2].view(), .norm = bound_[0].view(), .step_ok = bound_[1]});
  }

  // Summed in fp64, rounded to fp32 once.
  std::vector<Agreement> check(const std::string&) override {
    double squares = 0;
    for (std::int64_t i = 0; i < tensors_; ++i)
      for (const double value : gradient_.rows(i, 1)) squares += value * value;
    return {{"norm", relative_error(norm_.values(), {std::sqrt(squares)}),
             2 * execution::epsilon(Dtype::fp32), false, "the one number"}};
  }

 private:
  Operand partials_;
  std::vector<Bound> gradients_;
  kernels::NormPartials op_;
  std::vector<Bound> bound_;
  kernels::NormPartials::Operands<execution::View> views_;
};

/// @tparam kRounds with states of three bytes and gradients in bf16
template <bool kRounds>
class AdamwCase final : public OptimizerCase {
 public:
  AdamwCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OptimizerCase(gpu, shape, seed, kRounds ? Dtype::bf16 : Dtype::fp32),
        storage_(kRounds || shape["bf16"] != 0 ? Dtype::bf16 : Dtype::fp32),
        parameter_(gpu, "parameter", Role::input, storage_, {tensors_, each_}),
        m_(gpu, "m", Role::input, kRounds ? Dtype::e4m3 : Dtype::fp32, {tensors_, each_}),
        v_(gpu, "v", Role::input, kRounds ? Dtype::bf16 : Dtype::fp32, {tensors_, each_}),
        schedule_(gpu, "schedule", Role::input, Dtype::fp32, {2}),
        step_(gpu, "step", Role::input, Dtype::int64, {1}),
        op_{.pieces = {},
            .storage = storage_,
            .has_master = !kRounds && storage_ == Dtype::bf16,
            .clip = kClip,
            .options = {},
            .m_type = m_.dtype(),
            .v_type = v_.dtype(),
            .gradient_type = gradient_.dtype()},
        bound_{Bound(schedule_), Bound(step_), Bound(norm_), Bound(step_ok_)},
        views_{bound_[0], bound_[1], bound_[2], bound_[3], {}} {
    if (op_.has_master)
      master_ =
          std::make_unique<Operand>(gpu, "master", Role::input, Dtype::fp32, gradient_.shape());
    operands.insert(operands.end(), {&parameter_, &m_, &v_, &schedule_, &step_});
    const float schedule[] = {1e-4F, 0.1F};
    schedule_.upload(schedule);
    const std::int64_t step = 10;
    step_.upload(&step);
    fill();
    for (std::int64_t i = 0; i < tensors_; ++i) {
      for (const Operand* operand : {&parameter_, &gradient_, &m_, &v_})
        parts_.push_back(tensor(*operand, i));
      if (master_) masters_.push_back(tensor(*master_, i));
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(tensors_); ++i) {
      op_.pieces.push_back({each_, true});
      views_.tensors.push_back({.parameter = parts_[4 * i].view(),
                                .master = master_ ? masters_[i].view() : execution::View(),
                                .gradient = parts_[4 * i + 1].view(),
                                .m = parts_[4 * i + 2].view(),
                                .v = parts_[4 * i + 3].view()});
    }
  }

  execution::Cost cost() const override { return op_.cost(); }
  void enqueue(const std::string&, execution::Queue& queue) override { op_.run(queue, views_); }

  // One step from the state at the start, once more, since every launch goes on from the last.
  std::vector<Agreement> check(const std::string& implementation) override {
    fill();
    const std::int64_t n = std::min(kChecked, each_);
    const auto first = [n](const Operand& operand) {
      std::vector<double> row = operand.rows(0, 1);
      row.resize(static_cast<std::size_t>(n));
      return row;
    };
    const Operand& weights = master_ ? *master_ : parameter_;
    const auto first_moment = [&] {
      std::vector<double> values = first(m_);
      const std::vector<double> squares = first(v_);
      if (kRounds)
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] *= std::sqrt(squares[i]) / kernels::kMomentScale;
      return values;
    };
    std::vector<double> parameter = first(weights), m = first_moment(), v = first(v_);
    const std::vector<double> gradient = first(gradient_);
    const double schedule[] = {static_cast<double>(1e-4F), static_cast<double>(0.1F)};
    enqueue(implementation, gpu_.queue());
    const double norm = norm_.values()[0];
    const std::int64_t step = 10;
    const std::int32_t ok = 1;
    kernels::Adamw few = op_;
    few.pieces = {{n, true}};
    few.m_type = few.v_type = few.gradient_type = Dtype::fp32;  // the reference's own type: fp64
    kernels::OperandsOf<kernels::Adamw, kernels::Pointers<double>> o{
        schedule, &step, &norm, &ok, {}};
    o.tensors.push_back({parameter.data(), nullptr, gradient.data(), m.data(), v.data()});
    on_host([&] { few.reference<double>(o); });
    // Rounded beta moves 1 - beta, the gradient's part of m, by beta / (1 - beta) units: 9. Of v
    // the old value is the most, of a parameter all but a thousandth: a few roundings of their own.
    const double unit = execution::epsilon(Dtype::fp32);
    const std::string over = some_of(n, tensors_ * each_, "elements");
    return {{"parameter", relative_error(first(parameter_), parameter),
             (storage_ == Dtype::fp32 ? 0 : execution::epsilon(storage_)) + 2 * unit, false, over},
            {"m", relative_error(first_moment(), m), rounded(m_) + 10 * unit, false, over},
            {"v", relative_error(first(v_), v), rounded(v_) + 4 * unit, false, over}};
  }

 private:
  void fill() {
    parameter_.fill_normal(seed_, 0, 0.02);
    if (master_) master_->fill_normal(seed_, 0, 0.02);
    m_.fill_normal(seed_, 0, kRounds ? 8 : 1e-4);
    v_.fill_normal(seed_, 1e-6, 1e-8);
    const float norm = 3;
    norm_.upload(&norm);
  }

  /// Of what is stored in fewer bits: an error within a step, by norm.
  static double rounded(const Operand& moment) {
    return moment.dtype() == Dtype::fp32 ? 0 : 2 * execution::epsilon(moment.dtype());
  }

  Dtype storage_;
  Operand parameter_, m_, v_, schedule_, step_;
  std::unique_ptr<Operand> master_;
  std::vector<Bound> parts_, masters_;
  kernels::Adamw op_;
  std::vector<Bound> bound_;
  kernels::Adamw::Operands<execution::View> views_;
};

kernels::NewtonSchulz newton_schulz_of(const Shape& shape) {
  return {.matrices = {{shape["count"], shape["rows"], shape["columns"]}},
          .options = {},
          .storage = Dtype::bf16};
}

class NewtonSchulzCase final : public OperatorCase<kernels::NewtonSchulz> {
 public:
  NewtonSchulzCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu, newton_schulz_of(shape), seed), gpu_(gpu), seed_(seed) {}

  // Once more from the start, since every launch goes on from the last.
  std::vector<Agreement> check(const std::string& implementation) override {
    kernels::NewtonSchulz one = op_;
    one.matrices.front().count = 1;
    one.storage = Dtype::fp64;
    Operand& x = *o_.matrices[0].x;
    const auto first = [&] { return x.rows(0, one.matrices.front().elements()); };
    x.fill_normal(seed_, 0, 1);
    std::vector<double> expected = first();
    std::vector<double> room(one.workspace_bytes() / sizeof(double) + 1);
    kernels::NewtonSchulz::Operands<kernels::Pointers<double>> pointers;
    pointers.matrices.push_back({.x = expected.data()});
    pointers.workspace = room.data();
    on_host([&] { one.reference<double>(pointers); });
    enqueue(implementation, gpu_.queue());
    // Of five iterations in fp16: what is left where the polynomial's terms cancel
    // (newton_schulz_tolerance). Fp16 has three bits more than bf16, to which X is rounded at last.
    constexpr double kLost = 33;
    return {{"x", relative_error(first(), expected),
             (kLost / 8 + 1) * execution::epsilon(Dtype::bf16), false, "the first matrix"}};
  }

 private:
  run::Gpu& gpu_;
  std::int64_t seed_;
};

}  // namespace

std::vector<Entry> optimizer_entries() {
  return {operator_entry<AdamwCase<false>>(
              "adamw", "AdamW of P parameters in equal tensors; bf16 = 1: with fp32 masters",
              {Shape{{"P", 1 << 30}, {"tensors", 256}, {"bf16", 1}},
               Shape{{"P", 1 << 30}, {"tensors", 256}, {"bf16", 0}}}),
          operator_entry<AdamwCase<true>>(
              "adamw_fp8", "AdamW of P bf16 parameters, states of three bytes, bf16 gradients",
              {Shape{{"P", 1 << 30}, {"tensors", 256}}}),
          operator_entry<GlobalNormCase>("global_norm", "norm of P fp32 gradients in equal tensors",
                                         {Shape{{"P", 1 << 30}, {"tensors", 256}}}),
          operator_entry<NewtonSchulzCase>(
              "newton_schulz", "five iterations on bf16 matrices of one shape",
              {Shape{{"count", 1}, {"rows", 8192}, {"columns", 2048}},
               Shape{{"count", 4}, {"rows", 2048}, {"columns", 2048}},
               Shape{{"count", 64}, {"rows", 1024}, {"columns", 2048}},
               Shape{{"count", 256}, {"rows", 64}, {"columns", 2048}}})};
}

}  // namespace stowage::drivers::bench
