#pragma once

#include "ctest/kernels/operator_arrays.hpp"
#include "ctest/kernels/packed.hpp"
#include "kernels/ssd/ssd.hpp"

/// A scan's inputs in the tests, X, B and C apart, and as the operands that its operators take.
namespace stowage::kernels::test {

struct ScanCase {
  SsdShape shape;
  Packed packed;

  template <class Op>
  Op op(Dtype storage) const {
    Op op{};
    op.shape = shape;
    op.tokens = packed.tokens;
    op.storage = storage;
    return op;
  }
};

struct ScanInputs {
  ScanInputs(Random& random, const ScanCase& test, Dtype storage)
      : x(rounded(random.normal(test.packed.tokens * test.shape.inner()), storage)),
        dt(rounded(random.normal(test.packed.tokens * test.shape.heads), storage)),
        b(rounded(random.normal(test.packed.tokens * test.shape.shared()), storage)),
        c(rounded(random.normal(test.packed.tokens * test.shape.shared()), storage)),
        a_log(rounded(random.uniform(test.shape.heads, -3, 1), storage)),
        d(rounded(random.normal(test.shape.heads), storage)),
        dt_bias(rounded(random.normal(test.shape.heads), storage)),
        dy(rounded(random.normal(test.packed.tokens * test.shape.inner()), storage)) {}
  /// Adds a state that enters and the gradient of the one that leaves.
  ScanInputs& with_ends(Random& random, const ScanCase& test) {
    initial = random.normal(test.shape.inner() * test.shape.state);
    dfinal = random.normal(test.shape.inner() * test.shape.state);
    return *this;
  }
  /// Those of the tokens [first, first + n), from ends of their own.
  ScanInputs part(const ScanCase& test, std::int64_t first, std::int64_t n) const {
    const auto cut = [&](const Values& values, std::int64_t width) {
      return Values(values.begin() + first * width, values.begin() + (first + n) * width);
    };
    ScanInputs some = *this;
    some.x = cut(x, test.shape.inner());
    some.dt = cut(dt, test.shape.heads);
    some.b = cut(b, test.shape.shared());
    some.c = cut(c, test.shape.shared());
    some.dy = cut(dy, test.shape.inner());
    return some;
  }

  Values x, dt, b, c, a_log, d, dt_bias, dy;
  Values initial, dfinal;  // (H, P, N), or empty
};

/// The case of the tokens [first, first + n).
inline ScanCase part_of(const ScanCase& test, std::int64_t first, std::int64_t n) {
  ScanCase some = test;
  some.packed.tokens = n;
  const auto begin = test.packed.document.begin() + first;
  some.packed.document.assign(begin, begin + n);
  return some;
}

/// [X | B | C] of values of which each row has its parts, and back.
inline Values joined(const SsdShape& shape, const Values& x, const Values& b, const Values& c) {
  Values all;
  for (std::size_t t = 0; t < x.size() / at(shape.inner()); ++t)
    for (const Values* part : {&x, &b, &c}) {
      const auto width = (part == &x ? shape.inner() : shape.shared());
      const auto from = part->begin() + static_cast<std::int64_t>(t) * width;
      all.insert(all.end(), from, from + width);
    }
  return all;
}
inline Values columns(const SsdShape& shape, const Values& all, std::int64_t first,
                      std::int64_t count) {
  Values some;
  for (auto row = all.begin(); row != all.end(); row += shape.channels())
    some.insert(some.end(), row + first, row + first + count);
  return some;
}

/// Sets what a scan's operator reads, which are NaN around the columns.
inline void set_inputs(const SsdInputs<Array>& o, const ScanCase& test, const ScanInputs& in) {
  set(o.xbc, joined(test.shape, in.x, in.b, in.c));
  set(o.dt, in.dt);
  set(o.a_log, in.a_log);
  set(o.d, in.d);
  set(o.dt_bias, in.dt_bias);
  set(o.seq_idx, {test.packed.document.begin(), test.packed.document.end()});
  if (o.initial_state.view()) set(o.initial_state, in.initial);
}

/// Relative to the values or to 1, whichever is larger: a single value may cancel to near 0.
inline double error_of(const Values& actual, const Values& expected) {
  return std::min(relative_error(actual, expected), rms_difference(actual, expected));
}

}  // namespace stowage::kernels::test
