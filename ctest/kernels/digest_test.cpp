#include "kernels/digest/digest.hpp"

#include <array>

#include "ctest/kernels/support.hpp"
#include "execution/philox.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace stowage::kernels::test {
namespace {

using Sums = std::array<std::uint64_t, 2>;

constexpr Dtype kDtypes[] = {Dtype::fp64,  Dtype::fp32,  Dtype::bf16,
                             Dtype::int32, Dtype::int64, Dtype::uint8};

/// Random bits of any dtype: NaN, infinities and signed zeros among them.
Array random_bits(Random& random, Dtype dtype, std::vector<std::int64_t> shape) {
  const Array made(dtype, std::move(shape));
  for (std::uint8_t& byte : std::span(static_cast<std::uint8_t*>(made.view().data[0]),
                                      made.size() * execution::size_bytes(dtype)))
    byte = static_cast<std::uint8_t>(random.integer(0, 255));
  return made;
}

/// Elements from `first` on.
DigestPart starting(std::uint64_t stream, std::int64_t first) {
  DigestPart part{stream};
  part.index.first = first;
  return part;
}

/// `run` columns from `first` on of a matrix of `columns` of them.
DigestPart columns_of(std::uint64_t stream, std::int64_t first, std::int64_t run,
                      std::int64_t columns) {
  DigestPart part{stream};
  part.index.dimensions = 2;
  part.index.dimension[0] = {.local = 1 << 20, .global = 1 << 20};
  part.index.dimension[1] = {
      .local = run, .global = columns, .ranges = 1, .begin = {first}, .length = {run}};
  return part;
}

/// The digest of what `work` adds.
Sums sums_of(const std::function<void(Queue&, const View&)>& work) {
  const Array sums(Dtype::int64, {2});
  on_queue([&](Queue& q) {
    fill(q, sums, 0);
    work(q, sums);
  });
  return {sums.as<std::uint64_t>()[0], sums.as<std::uint64_t>()[1]};
}

Sums digest(const DigestPart& part, const Array& tensor) {
  return sums_of([&](Queue& q, const View& sums) { add_digest(q, part, tensor, sums); });
}

Sums reference(const DigestPart& part, const Array& tensor) {
  Sums sums{};
  digest_ref(part, tensor.dtype(), static_cast<std::int64_t>(tensor.size()), tensor.view().data[0],
             sums.data());
  return sums;
}

TEST(digest, is_the_sum_of_its_elements) {
  Random random;
  for (const Dtype dtype : kDtypes)
    for (const std::int64_t count : {0, 1, 7, 8, 9, 1000, 20011}) {
      const Array x = random_bits(random, dtype, {count});
      const std::int64_t first = random.integer(0, 40);
      for (const DigestPart& part :
           {DigestPart{1}, starting(2, first), columns_of(3, first % 7, 5, 12)})
        EXPECT_EQ(digest(part, x), reference(part, x))
            << execution::name(dtype) << ' ' << count << " from " << first;
    }
}

// Made by another program from the formula: later versions of the code give the same digests.
TEST(digest, value_is_fixed) {
  const Array x(Dtype::fp32, {3, 5}, Values{1, -2, 3, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0.5});
  const Sums sums = digest({execution::stream_of("layers.0.w")}, x);
  EXPECT_EQ(digest_text(sums.data()), "400435e66d1ae591a206e5c142288bed");
}

// However a tensor lies on ranks, the sum of the parts is the digest of the whole.
TEST(digest, parts_add_up_to_the_whole) {
  Random random;
  constexpr std::int64_t kRows = 12, kColumns = 35;
  for (const Dtype dtype : kDtypes) {
    const std::size_t size = execution::size_bytes(dtype);
    const Array whole = random_bits(random, dtype, {kRows, kColumns});
    const auto* from = static_cast<const std::byte*>(whole.view().data[0]);
    const auto part = [&](std::int64_t row, std::int64_t rows, std::int64_t column,
                          std::int64_t columns) {
      const Array made(dtype, {rows, columns});
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(from + static_cast<std::size_t>((row + r) * kColumns + column) * size,
                    static_cast<std::size_t>(columns) * size,
                    static_cast<std::byte*>(made.view().data[0]) +
                        static_cast<std::size_t>(r * columns) * size);
      return made;
    };
    const std::int64_t cut = random.integer(1, kRows - 1), at = random.integer(1, kColumns - 1);
    const Array upper = part(0, cut, 0, kColumns), lower = part(cut, kRows - cut, 0, kColumns);
    const Array left = part(0, kRows, 0, at), right = part(0, kRows, at, kColumns - at);
    const Sums expected = digest({9}, whole);
    EXPECT_EQ(sums_of([&](Queue& q, const View& sums) {
                add_digest(q, starting(9, cut * kColumns), lower, sums);
                add_digest(q, {9}, upper, sums);
              }),
              expected)
        << "rows from " << cut;
    EXPECT_EQ(sums_of([&](Queue& q, const View& sums) {
                add_digest(q, columns_of(9, 0, at, kColumns), left, sums);
                add_digest(q, columns_of(9, at, kColumns - at, kColumns), right, sums);
              }),
              expected)
        << "columns from " << at;
  }
}

TEST(digest, tells_every_bit_name_dtype_and_place) {
  Random random;
  for (const Dtype dtype : kDtypes) {
    const Array x = random_bits(random, dtype, {501});
    const std::span bytes(static_cast<std::uint8_t*>(x.view().data[0]),
                          x.size() * execution::size_bytes(dtype));
    const Sums before = digest({4}, x);
    for (int bit = 0; bit < 8 * static_cast<int>(execution::size_bytes(dtype)); ++bit) {
      const auto element = static_cast<std::size_t>(random.integer(0, 500));
      std::uint8_t& byte =
          bytes[element * execution::size_bytes(dtype) + static_cast<std::size_t>(bit) / 8];
      byte = static_cast<std::uint8_t>(byte ^ (1U << (bit % 8)));
      const Sums after = digest({4}, x);
      byte = static_cast<std::uint8_t>(byte ^ (1U << (bit % 8)));
      EXPECT_NE(after[0], before[0]) << execution::name(dtype) << " bit " << bit;
      EXPECT_NE(after[1], before[1]) << execution::name(dtype) << " bit " << bit;
    }
    for (const DigestPart& other : {DigestPart{5}, starting(4, 1), starting(4, 8)})
      EXPECT_NE(digest(other, x), before);
  }
  const Array zeros(Dtype::fp32, {16}, Values(16, 0.0));
  const Array integers(Dtype::int32, {16}, Values(16, 0.0));
  const Array fewer(Dtype::fp32, {15}, Values(15, 0.0));
  EXPECT_NE(digest({4}, zeros), digest({4}, integers)) << "a tensor of another dtype";
  EXPECT_NE(digest({4}, zeros), digest({4}, fewer)) << "a zero that is missing";
}

// Changes that a plain sum of bits would miss, and two high bits that odd factors alone would.
TEST(digest, tells_swaps_and_pairs) {
  for (const Dtype dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
    Values values(64);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
    const Sums before = digest({4}, Array(dtype, {64}, values));
    for (std::size_t other = 1; other < values.size(); ++other) {
      Values swapped = values, flipped = values;
      std::swap(swapped[0], swapped[other]);
      flipped[0] *= -1;
      flipped[other] *= -1;
      EXPECT_NE(digest({4}, Array(dtype, {64}, swapped)), before) << other;
      EXPECT_NE(digest({4}, Array(dtype, {64}, flipped)), before) << other;
    }
  }
}

}  // namespace
}  // namespace stowage::kernels::test
