#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Elements behind the values in `sums`: how many ranks have step_ok 0, 1, and 2.
inline constexpr std::int64_t kStepFlags = 3;

/// Most tensors whose values are gathered.
inline constexpr int kMostStepValues = 120;

/// The elements of each value, and those of the sums with the flags.
struct StepElements {
  std::vector<std::int64_t> each;

  std::int64_t sums() const;
  std::string fault() const;
  execution::Cost cost() const { return {0, 16.0 * static_cast<double>(sums())}; }
};

/// sums = the elements of `values`, one tensor behind the other, then kStepFlags words: step_ok is
/// 0, 1, 2, each as 0 or 1, which add up over ranks.
struct GatherSums {
  static constexpr std::string_view kName = "gather_sums";
  StepElements elements;
  execution::Dtype storage;

  template <class T>
  struct Value {
    SumsIn<T> value;
  };
  template <class T>
  struct Operands {
    Of<T, const std::int32_t> step_ok;
    RowsOfType<T, double> sums;
    ListOf<T, Value> values;
  };
  void each(auto&& f, auto&... o) const {
    f(in("step_ok", execution::Dtype::int32, {1}), o.step_ok...);
    f(out("sums", execution::Dtype::fp64, {elements.sums()}), o.sums...);
    for (std::size_t i = 0; i < elements.each.size(); ++i)
      f(in("value", execution::accumulation(storage), {elements.each[i]}).in_any_shape(),
        o.values[i].value...);
  }
  std::string fault() const { return elements.fault(); }
  execution::Cost cost() const { return elements.cost(); }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// The way back: values from sums, rounded to their type; step_ok becomes the least that any rank
/// had.
struct SpreadSums {
  static constexpr std::string_view kName = "spread_sums";
  StepElements elements;
  execution::Dtype storage;

  template <class T>
  struct Value {
    SumsOut<T> value;
  };
  template <class T>
  struct Operands {
    Of<T, std::int32_t> step_ok;
    RowsOfType<T, const double> sums;
    ListOf<T, Value> values;
  };
  void each(auto&& f, auto&... o) const {
    f(out("step_ok", execution::Dtype::int32, {1}), o.step_ok...);
    f(in("sums", execution::Dtype::fp64, {elements.sums()}), o.sums...);
    for (std::size_t i = 0; i < elements.each.size(); ++i)
      f(out("value", execution::accumulation(storage), {elements.each[i]}).in_any_shape(),
        o.values[i].value...);
  }
  std::string fault() const { return elements.fault(); }
  execution::Cost cost() const { return elements.cost(); }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
