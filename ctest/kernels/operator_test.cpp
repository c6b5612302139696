// What follows from the declaration of an operator: uses, checks and its run.
#include "kernels/operator.hpp"

#include <gtest/gtest.h>

#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"
#include "execution/program.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels::test {
namespace {

using execution::Access;
using execution::Tensor;
using execution::Use;

/// y = factor * x of columns, or y += that.
struct Scale {
  static constexpr std::string_view kName = "scale";
  std::int64_t rows, width;
  Dtype storage;
  bool weighted = false, accumulate = false;

  template <class T>
  struct Operands {
    InColumns<T> x;
    In<T> factor;
    Out<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, width}), o.x...);
    f(in("factor", storage, {rows}).when(weighted), o.factor...);
    f(sum("y", accumulate, storage, {rows, width}), o.y...);
  }
  std::string fault() const { return rows < 0 ? "rows are negative" : ""; }
  execution::Cost cost() const { return {1, 2}; }
  void run(Queue& queue, const Operands<View>& views) const { kernels::run(queue, *this, views); }
  template <class S>
  void reference(const Operands<Pointers<S>>& o) const {
    using A = execution::Accumulation<S>;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        const A factor = o.factor == nullptr ? A{1} : static_cast<A>(o.factor[i]);
        o.y[i * width + j] = static_cast<S>(factor * static_cast<A>(o.x(i, j)));
      }
  }
  template <class S>
  int launch(const Operands<Pointers<S>>&, void*) const {
    return 0;
  }
};

std::string message(const Scale& op, const Arrays<Scale>& arrays) {
  try {
    run(op, arrays);
  } catch (const execution::Error& error) {
    return error.what();
  }
  return {};
}

TEST(operator_declared, runs_on_columns_and_without_an_optional_operand) {
  Random random;
  Scale op{.rows = 3, .width = 2, .storage = Dtype::fp64, .weighted = true};
  const Arrays<Scale> o = make_arrays(op, random);
  set(o.factor, {1, 2, 3});
  run(op, o);
  Values expected = values(o.x);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= static_cast<double>(i / 2 + 1);
  EXPECT_EQ(o.y.values(), expected);
  op.weighted = false;
  run(op, {.x = o.x, .factor = {}, .y = o.y});
  EXPECT_EQ(o.y.values(), values(o.x));
}

TEST(operator_declared, names_what_is_not_as_declared) {
  Random random;
  const Scale op{.rows = 3, .width = 2, .storage = Dtype::fp32, .weighted = true};
  const Arrays<Scale> good = make_arrays(op, random);
  Arrays<Scale> bad = good;
  bad.factor = {};
  EXPECT_NE(message(op, bad).find("scale: factor is absent"), std::string::npos);
  bad.factor = Array(Dtype::fp32, {4}, "four");
  EXPECT_NE(message(op, bad).find("scale: factor is fp32 (4) 'four', it must be fp32 (3)"),
            std::string::npos);
  bad = good;
  bad.x.count = 1;
  EXPECT_NE(message(op, bad).find("scale: x has 1 columns, it must have 2"), std::string::npos);
  Scale plain = op;
  plain.weighted = false;
  EXPECT_NE(message(plain, good).find("scale: factor is fp32 (3) 'factor', it must be absent"),
            std::string::npos);
  plain.rows = -1;
  EXPECT_NE(message(plain, good).find("scale: rows are negative"), std::string::npos);
}

TEST(operator_declared, is_recorded_in_the_order_of_its_operands) {
  execution::Program program("step");
  const Tensor x = program.scratch("x", Dtype::fp32, {3, 5});
  const Tensor factor = program.scratch("factor", Dtype::fp32, {3});
  const Tensor y = program.scratch("y", Dtype::fp32, {3, 2});
  Scale op{.rows = 3, .width = 2, .storage = Dtype::fp32, .weighted = true};
  const auto uses = [&](const OperandsOf<Scale, Tensor>& operands) {
    std::vector<std::pair<int, Access>> found;
    for (const Use& use : recorded(op, operands).uses)
      found.emplace_back(use.tensor.id, use.access);
    return found;
  };
  using Found = std::vector<std::pair<int, Access>>;
  EXPECT_EQ(uses({.x = {x, 1, 2}, .factor = factor, .y = y}),
            (Found{{x.id, Access::read}, {factor.id, Access::read}, {y.id, Access::write}}));
  EXPECT_EQ(uses({.x = {x, 1, 2}, .factor = {}, .y = x}), (Found{{x.id, Access::update}}));
  op.accumulate = true;
  EXPECT_EQ(uses({.x = {x, 1, 2}, .factor = {}, .y = y}),
            (Found{{x.id, Access::read}, {y.id, Access::update}}));
  EXPECT_EQ(recorded(op, {.x = {x, 1, 2}, .factor = factor, .y = y}).cost.bytes, 2);
}

TEST(operator_declared, columns_beside_written_ones_update_their_tensor) {
  const auto access = [](const Spec& spec, bool beside) {
    std::vector<Use> uses;
    add_use(uses, spec, ColumnsOf<Tensor>{Tensor{3}, 0, 2, beside});
    return uses.at(0).access;
  };
  EXPECT_EQ(access(out("y", Dtype::fp32, {3, 2}), false), Access::write);
  EXPECT_EQ(access(out("y", Dtype::fp32, {3, 2}), true), Access::update);
  EXPECT_EQ(access(in("x", Dtype::fp32, {3, 2}), true), Access::read);
}

TEST(operator_declared, views_find_their_operands) {
  const Array x(Dtype::fp64, {1, 3}, Values{1, 2, 3}), y(Dtype::fp64, {1, 2});
  const Scale op{.rows = 1, .width = 2, .storage = Dtype::fp64};
  const execution::Op made = recorded(op, {.x = {Tensor{7}, 1, 2}, .factor = {}, .y = Tensor{4}});
  on_queue([&](Queue& queue) {
    const View views[] = {x.view(), y.view()};
    made.launch(queue, views);
  });
  EXPECT_EQ(y.values(), (Values{2, 3}));
}

/// y (2, 3) becomes the rows of x.
struct CopyRows {
  static constexpr std::string_view kName = "copy_rows";
  Dtype storage = Dtype::fp64;
  template <class T>
  struct Operands {
    InRows<T> x;
    OutRows<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {2, 3}), o.x...);
    f(out("y", storage, {2, 3}), o.y...);
  }
  execution::Cost cost() const { return {}; }
  void run(Queue& queue, const Operands<View>& views) const { kernels::run(queue, *this, views); }
  template <class S>
  void reference(const Operands<Pointers<S>>& o) const {
    std::copy_n(o.x, 6, o.y);
  }
  template <class S>
  int launch(const Operands<Pointers<S>>&, void*) const {
    return 0;
  }
};

TEST(operator_declared, some_rows_are_a_use_of_their_elements) {
  const Tensor x{7};
  const execution::Op made = recorded(CopyRows{}, {.x = {x, {1, 3}}, .y = {x, {4, 6}}});
  ASSERT_EQ(made.uses.size(), 2U);
  EXPECT_EQ(made.uses[0].range, (execution::Range{3, 9}));
  EXPECT_EQ(made.uses[0].access, Access::read);
  EXPECT_EQ(made.uses[1].range, (execution::Range{12, 18}));
  EXPECT_EQ(made.uses[1].access, Access::write);
  EXPECT_EQ(recorded(CopyRows{}, {.x = x, .y = x}).uses.size(), 1U);
  const auto launch = [&](const Array& from, const Array& to) {
    on_queue([&](Queue& queue) {
      const View views[] = {from.view(), to.view()};
      made.launch(queue, views);
    });
  };
  const Array six(Dtype::fp64, {6}, Values{1, 2, 3, 4, 5, 6}), y(Dtype::fp64, {6});
  launch(six, y);
  EXPECT_EQ(y.values(), six.values());
  EXPECT_THROW(launch(Array(Dtype::fp64, {5}), y), execution::Error);
  EXPECT_THROW(run(CopyRows{}, {.x = six, .y = y}), execution::Error);  // all rows have a shape
}

/// y of each pair becomes its x, in any shape of two elements.
struct CopyPairs {
  static constexpr std::string_view kName = "copy_pairs";
  std::size_t pairs;
  Dtype storage = Dtype::fp64;
  template <class T>
  struct Pair {
    In<T> x;
    Out<T> y;
  };
  template <class T>
  struct Operands {
    ListOf<T, Pair> pairs;
  };
  void each(auto&& f, auto&... o) const {
    for (std::size_t i = 0; i < pairs; ++i) {
      f(in("x", storage, {2}).in_any_shape(), o.pairs[i].x...);
      f(out("y", storage, {2}).in_any_shape(), o.pairs[i].y...);
    }
  }
  execution::Cost cost() const { return {}; }
  void run(Queue& queue, const Operands<View>& views) const { kernels::run(queue, *this, views); }
  template <class S>
  void reference(const Operands<Pointers<S>>& o) const {
    for (std::size_t i = 0; i < pairs; ++i) std::copy_n(o.pairs[i].x, 2, o.pairs[i].y);
  }
  template <class S>
  int launch(const Operands<Pointers<S>>&, void*) const {
    return 0;
  }
};

TEST(operator_declared, lists_are_visited_group_by_group) {
  CopyPairs::Operands<Tensor> tensors;
  tensors.pairs.push_back({.x = Tensor{5}, .y = Tensor{3}});
  tensors.pairs.push_back({.x = Tensor{4}, .y = Tensor{6}});
  std::vector<int> used;
  for (const Use& use : recorded(CopyPairs{2}, tensors).uses) used.push_back(use.tensor.id);
  EXPECT_EQ(used, (std::vector<int>{5, 3, 4, 6}));
  Arrays<CopyPairs> arrays;
  arrays.pairs.push_back(
      {.x = Array(Dtype::fp64, {1, 2}, Values{1, 2}), .y = Array(Dtype::fp64, {2, 1})});
  run(CopyPairs{1}, arrays);
  EXPECT_EQ(std::as_const(arrays).pairs[0].y.values(), (Values{1, 2}));
  EXPECT_THROW(run(CopyPairs{2}, arrays), std::out_of_range);
  arrays.pairs[0].y = Array(Dtype::fp64, {3});
  EXPECT_THROW(run(CopyPairs{1}, arrays), execution::Error);
}

/// Its Operands<T> and each() say different things: of y, or of how many operands there are.
template <bool kForgets>
struct Wrong {
  static constexpr std::string_view kName = "wrong";
  Dtype storage = Dtype::fp64;
  template <class T>
  struct Operands {
    InColumns<T> x;
    In<T> y;
  };
  void each(auto&& f, auto&... o) const {
    if (kForgets)
      f(in("y", storage, {1}), o.y...);
    else
      f(in("x", storage, {1, 1}), o.x...);
    f(out("y", storage, {1}), o.y...);
  }
  execution::Cost cost() const { return {}; }
  void run(Queue& queue, const Operands<View>& views) const { kernels::run(queue, *this, views); }
  template <class S>
  void reference(const Operands<Pointers<S>>&) const {}
  template <class S>
  int launch(const Operands<Pointers<S>>&, void*) const {
    return 0;
  }
};

TEST(operator_declared, says_the_same_twice) {
  const Array one(Dtype::fp64, {1, 1}), y(Dtype::fp64, {1});
  EXPECT_THROW(run(Wrong<false>{}, {.x = {one, 0, 1}, .y = y}), execution::Error);
  EXPECT_THROW((void)recorded(Wrong<true>{}, {.x = {}, .y = {}}), execution::Error);
  EXPECT_NO_THROW((void)recorded(Wrong<false>{}, {.x = {}, .y = {}}));
}

}  // namespace
}  // namespace stowage::kernels::test
