// The digest on a GPU: the host's number, whatever the alignment and the cut.

#include <array>

#include "ctest/kernels/device_mirror.hpp"
#include "ctest/kernels/support.hpp"
#include "kernels/digest/digest.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace stowage::kernels::test {
namespace {

TEST(digest_gpu, is_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16})
    for (const std::int64_t count : {1, 9, 20011, 5000000})
      for (int how = 0; how < 4; ++how) {
        DigestPart part{static_cast<std::uint64_t>(how)};
        if (how < 3)
          part.index.first = std::array{0, 3, 8}[how];
        else  // columns 5 to 10 of 11
          part.index = {
              .dimensions = 2,
              .dimension = {{.local = 1 << 20, .global = 1 << 20},
                            {.local = 6, .global = 11, .ranges = 1, .begin = {5}, .length = {6}}}};
        const Array x(dtype, {count}, random.normal(count)), sums(Dtype::int64, {2});
        const auto work = [&](Queue& q, auto& at) {
          fill(q, at(sums), 0);
          add_digest(q, part, at(x), at(sums));
        };
        const std::vector<Array> there = on_gpu(work, {sums});
        std::uint64_t expected[2] = {};
        digest_ref(part, dtype, count, x.view().data[0], expected);
        EXPECT_EQ(there[0].as<std::uint64_t>()[0], expected[0]) << count;
        EXPECT_EQ(there[0].as<std::uint64_t>()[1], expected[1]) << count;
      }
}

}  // namespace
}  // namespace stowage::kernels::test
