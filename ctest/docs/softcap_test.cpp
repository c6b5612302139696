// The operator that docs/develop/add_an_operator.md adds: declaration, reference, test.
#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/operator_arrays.hpp"
#include "kernels/cost.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Soft cap of logits (arXiv 2408.00118, section 2): y = cap * tanh(x / cap).
struct SoftcapForward {
  static constexpr std::string_view kName = "softcap_forward";
  std::int64_t elements;
  execution::Dtype storage;
  double cap;

  template <class T>
  struct Operands {
    In<T> x;
    Out<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {elements}), o.x...);
    f(out("y", storage, {elements}), o.y...);
  }
  std::string fault() const { return cap > 0 ? "" : "cap is not positive"; }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
  template <class S>
  void reference(const Operands<Pointers<S>>& o) const;
};

execution::Cost SoftcapForward::cost() const {
  return {3.0 * static_cast<double>(elements), 2 * bytes(elements, storage)};
}

template <class S>
void SoftcapForward::reference(const Operands<Pointers<S>>& o) const {
  using A = execution::Accumulation<S>;
  const A limit = static_cast<A>(cap);
  for (std::int64_t i = 0; i < elements; ++i)
    o.y[i] = static_cast<S>(limit * std::tanh(static_cast<A>(o.x[i]) / limit));
}
STOWAGE_REFERENCES(SoftcapForward)

void SoftcapForward::run(execution::Queue& queue, const Operands<execution::View>& views) const {
  check(*this, views);
  const Address x(views.x), y(views.y);
  kernels::run(queue, kName, [op = *this, x, y] {
    execution::with_storage_type(
        op.storage, [&]<class S>() { op.reference<S>({.x = x.as<const S>(), .y = y.as<S>()}); });
  });
}

}  // namespace stowage::kernels

namespace stowage::kernels::test {
namespace {

TEST(softcap, matches_its_definition_in_every_type) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const std::int64_t elements : {1, 37, 1000}) {
      const SoftcapForward op{.elements = elements, .storage = storage, .cap = 30};
      const Arrays<SoftcapForward> o = make_arrays(op, random);
      run(op, o);
      Values expected = o.x.values();
      for (double& value : expected) value = 30 * std::tanh(value / 30);
      EXPECT_LE(relative_error(o.y.values(), expected), tolerance(storage, 1));
    }
}

TEST(softcap, refuses_a_cap_that_is_none) {
  Random random;
  const SoftcapForward op{.elements = 3, .storage = Dtype::fp32, .cap = 0};
  const Arrays<SoftcapForward> o = make_arrays(op, random);
  EXPECT_THROW(run(op, o), execution::Error);
}

}  // namespace
}  // namespace stowage::kernels::test
