// An optimizer that only tests have, in this one file.
#include "toy_optimizer.hpp"

#include "kernels/launch.hpp"
#include "layers/step/update.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;
using kernels::Of;

struct Descent {
  static constexpr std::string_view kName = "descent";
  std::vector<std::int64_t> elements;  ///< of each piece
  Dtype storage;
  bool has_master;

  template <class T>
  struct Tensors {
    kernels::OutRows<T> parameter;
    kernels::RowsOfType<T, kernels::Sums> master;
    kernels::RowsOfType<T, const kernels::Sums> gradient;
    kernels::RowsOfType<T, kernels::Sums> momentum;
  };
  template <class T>
  struct Operands {
    kernels::SumsIn<T> schedule;
    Of<T, const std::int32_t> step_ok;
    kernels::ListOf<T, Tensors> tensors;
  };
  void each(auto&& f, auto&... o) const {
    const Dtype sums = execution::accumulation(storage);
    f(kernels::in("schedule", sums, {2}), o.schedule...);
    f(kernels::in("step_ok", Dtype::int32, {1}), o.step_ok...);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto piece = [&](const char* name, Dtype dtype) {
        return kernels::sum(name, true, dtype, {elements[i]}).in_any_shape();
      };
      f(piece("parameter", storage), o.tensors[i].parameter...);
      f(piece("master", sums).when(has_master), o.tensors[i].master...);
      f(kernels::in("gradient", sums, {elements[i]}).in_any_shape(), o.tensors[i].gradient...);
      f(piece("momentum", sums), o.tensors[i].momentum...);
    }
  }
  execution::Cost cost() const { return {}; }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const {
    kernels::run(queue, *this, views);
  }
  template <class S>
  void reference(const Operands<kernels::Pointers<S>>& o) const {
    using A = execution::Accumulation<S>;
    if (*o.step_ok == 0) return;
    for (std::size_t piece = 0; piece < elements.size(); ++piece) {
      const Tensors<kernels::Pointers<S>>& t = o.tensors[piece];
      for (std::int64_t i = 0; i < elements[piece]; ++i) {
        t.momentum[i] = static_cast<A>(kMomentum) * t.momentum[i] + t.gradient[i];
        const A before = has_master ? t.master[i] : static_cast<A>(t.parameter[i]);
        const A after = before - o.schedule[0] * t.momentum[i];
        if (has_master) t.master[i] = after;
        t.parameter[i] = static_cast<S>(after);
      }
    }
  }
  template <class S>
  int launch(const Operands<kernels::Pointers<S>>&, void*) const {
    kernels::throw_no_cuda(kName);
  }
};

void record(const layers::ParameterUpdate& update) {
  Descent descent{
      .elements = {}, .storage = update.recorder.storage(), .has_master = update.has_master};
  Descent::Operands<layers::Tensor> operands{
      .schedule = update.schedule, .step_ok = update.step_ok, .tensors = {}};
  for (const layers::ParameterUpdate::One& one : update.parameters) {
    descent.elements.push_back(one.elements);
    operands.tensors.push_back({.parameter = one.parameter,
                                .master = one.master,
                                .gradient = one.gradient,
                                .momentum = one.states.front()});
  }
  update.recorder.compute(update.name, descent, operands);
}

constexpr std::string_view kStates[] = {"momentum"};

}  // namespace

constinit const layers::Optimizer kDescent = {
    .name = "descent", .states = kStates, .record = record};

}  // namespace stowage::ctest
