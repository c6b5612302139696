// Dtypes as C++ types: each that a call has a form for, and an error for the others.
#include "execution/dtype.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "execution/error.hpp"

namespace stowage::execution {
namespace {

const std::vector<Dtype> kFloating = {Dtype::fp64, Dtype::fp32, Dtype::bf16};
const std::vector<Dtype> kOthers = {Dtype::int32, Dtype::int64, Dtype::uint8};

template <class Call>
void expect_no_form(Dtype dtype, Call&& call) {
  try {
    call();
    ADD_FAILURE() << name(dtype) << " had a form";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(name(dtype)), std::string::npos) << error.what();
  }
}

TEST(dtype, storage_types_are_the_floating_ones) {
  for (const Dtype dtype : kFloating) {
    const Dtype found = with_storage_type(dtype, []<class S>() { return kDtypeOf<S>; });
    EXPECT_EQ(found, dtype);
    const std::size_t bytes = with_storage_type(dtype, []<class S>() { return sizeof(S); });
    EXPECT_EQ(bytes, size_bytes(dtype));
  }
  for (const Dtype dtype : kOthers)
    expect_no_form(dtype, [&] { with_storage_type(dtype, []<class S>() {}); });
}

TEST(dtype, sums_are_of_the_accumulation_type) {
  for (const Dtype dtype : kFloating) {
    const Dtype wide = accumulation(dtype);
    EXPECT_GE(size_bytes(wide), size_bytes(dtype));
    const Dtype found = with_accumulation_type(wide, []<class A>() { return kDtypeOf<A>; });
    EXPECT_EQ(found, wide);
    const Dtype same =
        with_storage_type(dtype, []<class S>() { return kDtypeOf<Accumulation<S>>; });
    EXPECT_EQ(same, wide);
  }
  expect_no_form(Dtype::bf16, [] { with_accumulation_type(Dtype::bf16, []<class A>() {}); });
  for (const Dtype dtype : kOthers) {
    expect_no_form(dtype, [&] { with_accumulation_type(dtype, []<class A>() {}); });
    expect_no_form(dtype, [&] { (void)accumulation(dtype); });
    EXPECT_EQ(epsilon(dtype), 0);
  }
}

}  // namespace
}  // namespace stowage::execution
