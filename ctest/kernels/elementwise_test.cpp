#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"
#include "execution/philox.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace stowage::kernels::test {
namespace {

constexpr std::int64_t kCount = 20011;  // several blocks of the loop, and a part

// Columns in ones, of which pieces of 16 bytes are no multiple, and in eights, which are pieces.
std::vector<std::pair<std::int64_t, Dtype>> units_and_types() {
  std::vector<std::pair<std::int64_t, Dtype>> all;
  for (const std::int64_t unit : {1, 8})
    for (const Dtype storage : kFloatingTypes) all.emplace_back(unit, storage);
  return all;
}

TEST(elementwise, add_rounds_once) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    const Values a = rounded(random.normal(kCount), storage);
    const Values b = rounded(random.normal(kCount), storage);
    Values sum = a;
    for (std::size_t i = 0; i < b.size(); ++i) sum[i] += b[i];
    // Rounding twice is rounding once: the wider type has twice the digits and two more.
    const Array as(storage, {kCount}, a), bs(storage, {kCount}, b), out(storage, {kCount});
    const Add op{out.view().buffer()};
    run(op, {.a = as, .b = bs, .out = out});
    run(op, {.a = as, .b = bs, .out = as});
    EXPECT_EQ(out.values(), rounded(sum, storage));
    EXPECT_EQ(as.values(), out.values());
  }
}

TEST(elementwise, scale_rounds_once) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    const Array x(storage, {37}, random.normal(37)), y(storage, {37});
    run(Scale{x.view().buffer(), 0.3}, {.x = x, .y = y});
    Values expected = x.values();
    for (double& value : expected) value *= 0.3;
    EXPECT_LE(relative_error(y.values(), expected), tolerance(storage, 1));
  }
}

TEST(elementwise, columns_are_packed_and_put_back) {
  Random random;
  const std::int64_t rows = 700;
  for (const auto& [unit, storage] : units_and_types()) {
    const std::int64_t width = 11 * unit, first = 3 * unit, count = 5 * unit;
    const Values values = rounded(random.normal(rows * width), storage);
    const Array wide(storage, {rows, width}, values), packed(storage, {rows, count});
    run(PackColumns{rows, count, storage}, {.columns = {wide, first, count}, .packed = packed});
    const Values of_columns = packed.values();
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < count; ++j)
        ASSERT_EQ(of_columns[i * count + j], values[i * width + first + j]);
  }
}

TEST(elementwise, columns_are_put_back_and_sums_rounded) {
  Random random;
  const std::int64_t rows = 37;
  for (const auto& [unit, storage] : units_and_types())
    for (const Dtype from : {storage, execution::accumulation(storage)})
      for (const bool all : {false, true}) {
        const std::int64_t width = 11 * unit, count = 5 * unit;
        const UnpackColumns op{rows, width, count, from, storage, all};
        Arrays<UnpackColumns> o = make_arrays(op, random);
        set(o.x, Values(static_cast<std::size_t>(rows * width), 7));
        run(op, o);
        const Values last = rounded(o.last.values(), storage), made = o.x.values();
        const Values before = all ? o.before.values() : Values{};
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < width; ++j) {
            const std::int64_t k = j - (width - count);
            ASSERT_EQ(made[i * width + j], k >= 0 ? last[i * count + k]
                                           : all  ? before[i * (width - count) + j]
                                                  : 7);
          }
        if (storage != Dtype::bf16) continue;
        UnpackColumns other = op;
        other.from = Dtype::fp64;
        EXPECT_THROW(run(other, make_arrays(other, random)), execution::Error);
        o.last = Array(Dtype::fp64, {rows, count});
        EXPECT_THROW(run(op, o), execution::Error);
      }
}

TEST(elementwise, blocks_of_columns_are_split_among_parts) {
  Random random;
  const std::int64_t rows = 50, parts = 3;
  for (const auto& [unit, storage] : units_and_types()) {
    const ColumnBlocks blocks{{12 * unit, 6 * unit, 6 * unit}};
    const std::int64_t width = 24 * unit, share = 8 * unit;
    const Values values = rounded(random.normal(rows * width), storage);
    const Array x(storage, {rows, width}, values), back(storage, {rows, width});
    const Array split(storage, {parts, rows, share});
    run(SplitColumns{rows, parts, blocks, storage}, {.x = x, .parts = split});
    run(JoinColumns{rows, parts, blocks, storage}, {.parts = split, .x = back});
    EXPECT_EQ(back.values(), values);
    const Values made = split.values();
    const std::int64_t first[] = {0, 1, 2, 3, 12, 13, 18, 19};  // of part 0
    for (std::int64_t p = 0; p < parts; ++p)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < share; ++j) {
          const std::int64_t column =
              first[j / unit] * unit + j % unit + p * (j < 4 * unit ? 4 : 2) * unit;
          ASSERT_EQ(made[(p * rows + i) * share + j], values[i * width + column]);
        }
  }
}

// Six parts of which two, or three, have the same share of a block: each gets it, and what they
// give back is added up in the order of parts, wider than it is stored.
TEST(elementwise, shares_of_several_parts_are_summed) {
  Random random;
  const std::int64_t rows = 35, parts = 6;
  for (const auto& [unit, storage] : units_and_types()) {
    const ColumnBlocks blocks{{12 * unit, 6 * unit, 4 * unit}, {1, 2, 3}};
    const std::int64_t width = 22 * unit, share = 6 * unit;
    const Values values = rounded(random.normal(rows * width), storage);
    const Values given = rounded(random.normal(parts * rows * share), storage);
    const Array x(storage, {rows, width}, values), sums(storage, {rows, width});
    const Array split(storage, {parts, rows, share}), back(storage, {parts, rows, share}, given);
    run(SplitColumns{rows, parts, blocks, storage}, {.x = x, .parts = split});
    run(JoinColumns{rows, parts, blocks, storage}, {.parts = back, .x = sums});
    const Values made = split.values(), joined = sums.values();
    for (std::int64_t i = 0; i < rows; ++i) {
      Values wanted(static_cast<std::size_t>(width), 0.0);
      for (std::int64_t p = 0; p < parts; ++p) {
        const std::int64_t columns[] = {2 * p,          2 * p + 1,      12 + p / 2 * 2,
                                        13 + p / 2 * 2, 18 + p / 3 * 2, 19 + p / 3 * 2};
        for (std::int64_t j = 0; j < share; ++j) {
          const auto at = static_cast<std::size_t>((p * rows + i) * share + j);
          const std::int64_t column = columns[j / unit] * unit + j % unit;
          ASSERT_EQ(made[at], values[i * width + column]);
          double& sum = wanted[column];
          sum = storage == Dtype::fp64 ? sum + given[at]
                                       : static_cast<float>(sum) + static_cast<float>(given[at]);
        }
      }
      wanted = rounded(wanted, storage);
      for (std::int64_t j = 0; j < width; ++j) ASSERT_EQ(joined[i * width + j], wanted[j]);
    }
  }
}

TEST(elementwise, blocks_that_do_not_divide_are_named) {
  const Array x(Dtype::fp32, {2, 6}), parts(Dtype::fp32, {4, 2, 3});
  for (const ColumnBlocks& blocks : {ColumnBlocks{{6, 0, 0}, {2, 1, 1}}, {{6, 0, 0}, {3, 1, 1}}}) {
    const std::int64_t count = blocks.copies[0] == 2 ? 3 : 4;
    const Array wrong(Dtype::fp32, {count, 2, 3});
    EXPECT_THROW(run(SplitColumns{2, count, blocks, Dtype::fp32}, {.x = x, .parts = wrong}),
                 execution::Error);
    EXPECT_THROW(run(JoinColumns{2, count, blocks, Dtype::fp32}, {.parts = wrong, .x = x}),
                 execution::Error);
  }
  run(SplitColumns{2, 4, {{6, 0, 0}, {2, 1, 1}}, Dtype::fp32}, {.x = x, .parts = parts});
}

TEST(elementwise, fill_every_dtype) {
  for (const Dtype dtype :
       {Dtype::fp64, Dtype::fp32, Dtype::bf16, Dtype::int32, Dtype::int64, Dtype::uint8}) {
    const Array x(dtype, {3, 7, 500});
    on_queue([&](Queue& q) { fill(q, x, 5); });
    EXPECT_EQ(x.values(), Values(x.size(), 5.0)) << execution::name(dtype);
  }
}

TEST(elementwise, fill_normal_is_the_stream) {
  constexpr std::uint64_t kSeed = 5, kStream = 99;
  const float scale = execution::normal_scale(0.02);
  for (const Dtype dtype : kFloatingTypes)
    for (const std::int64_t count : {std::int64_t{1}, kCount}) {
      Values stream;
      for (std::int64_t i = 0; i < count; ++i)
        stream.push_back(execution::normal(kSeed, kStream, static_cast<std::uint64_t>(i), scale));
      const Array x(dtype, {count});
      on_queue([&](Queue& q) { fill_normal(q, x, kSeed, kStream, scale); });
      EXPECT_EQ(x.values(), rounded(stream, dtype));
    }
}

TEST(elementwise, cast_rounds_to_nearest) {
  Random random;
  const Dtype pairs[][2] = {{Dtype::fp64, Dtype::fp64},
                            {Dtype::fp32, Dtype::fp32},
                            {Dtype::fp32, Dtype::bf16},
                            {Dtype::bf16, Dtype::fp32},
                            {Dtype::bf16, Dtype::bf16}};
  for (const auto& [from, to] : pairs) {
    const Values values = rounded(random.normal(kCount), from);
    const Array x(from, {kCount}, values), y(to, {kCount});
    run(Cast{x.view().buffer(), to}, {.x = x, .y = y});
    EXPECT_EQ(y.values(), rounded(values, to));
  }
}

TEST(elementwise, cast_of_a_tie_goes_to_even) {
  const Array x(Dtype::fp32, {2}, Values{257, 259}), y(Dtype::bf16, {2});
  run(Cast{x.view().buffer(), Dtype::bf16}, {.x = x, .y = y});
  EXPECT_EQ(y.values(), (Values{256, 260}));
}

TEST(elementwise, mixed_shapes_are_refused) {
  const Array a(Dtype::fp32, {4}), b(Dtype::fp32, {2, 2}), out(Dtype::fp32, {4});
  EXPECT_THROW(run(Add{a.view().buffer()}, {.a = a, .b = b, .out = out}), execution::Error);
  const Array wide(Dtype::fp64, {4});
  EXPECT_THROW(run(Cast{wide.view().buffer(), Dtype::fp32}, {.x = wide, .y = out}),
               execution::Error);
}

TEST(elementwise, cost_counts_each_operand_once) {
  EXPECT_EQ((Add{{"", Dtype::bf16, {5, 20}}}.cost().bytes), 600);
  EXPECT_EQ(fill_cost(100, Dtype::int64).bytes, 800);
  EXPECT_EQ((Cast{{"", Dtype::fp32, {100}}, Dtype::bf16}.cost().bytes), 600);
}

}  // namespace
}  // namespace stowage::kernels::test
