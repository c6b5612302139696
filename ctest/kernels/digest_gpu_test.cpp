// The digest on a GPU: the host's number, whatever the alignment and the cut.

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
      for (const DigestSlice& slice :
           {DigestSlice{1}, DigestSlice{2, 3}, DigestSlice{3, 8}, DigestSlice{4, 5, 6, 11}}) {
        const Array x(dtype, {count}, random.normal(count)), sums(Dtype::int64, {2});
        const auto work = [&](Queue& q, auto& at) {
          fill(q, at(sums), 0);
          add_digest(q, slice, at(x), at(sums));
        };
        const std::vector<Array> there = on_gpu(work, {sums});
        std::uint64_t expected[2] = {};
        digest_ref(slice, dtype, count, x.view().data[0], expected);
        EXPECT_EQ(there[0].as<std::uint64_t>()[0], expected[0]) << count;
        EXPECT_EQ(there[0].as<std::uint64_t>()[1], expected[1]) << count;
      }
}

}  // namespace
}  // namespace stowage::kernels::test
