// The arenas and queues that all programs of a run share.
#include <cstring>
#include <numeric>

#include "ctest/execution/host_support.hpp"
#include "execution/device.hpp"

namespace stowage::execution {
namespace {

constexpr std::int64_t kElements = (std::int64_t{8} << 20) + 4096;  // beyond what moves at once

PersistentLayout one_tensor(Region home) {
  PersistentLayout layout;
  layout.open_bucket("bucket", "", Dtype::uint8, {}, home);
  layout.add(one_buffer("x", Dtype::uint8, {kElements}, Lifetime::optimizer_state));
  layout.close();
  return layout;
}

class device : public testing::TestWithParam<Region> {
 protected:
  const std::unique_ptr<Backend> backend_ = make_host_backend();
  const PersistentLayout layout_ = one_tensor(GetParam());
  Device device_{*backend_, layout_, 64, layout_.host_bytes() + 64, 128};
};
INSTANTIATE_TEST_SUITE_P(, device, testing::Values(Region::persistent, Region::host),
                         [](const auto& home) {
                           return home.param == Region::host ? "host" : "device";
                         });

TEST_P(device, content_comes_back_from_the_bytes_it_went_to) {
  std::vector<std::byte> whole(kElements, std::byte{7}), part(kElements - 5), back(kElements);
  for (std::size_t i = 0; i < part.size(); ++i) part[i] = static_cast<std::byte>(i % 251);
  device_.write("x", whole);
  device_.write("x", part, 3);
  std::copy(part.begin(), part.end(), whole.begin() + 3);
  device_.read("x", back);
  EXPECT_EQ(back, whole);
  EXPECT_EQ(std::memcmp(device_.address(device_.layout().place("x")), whole.data(), whole.size()),
            0);
  std::ranges::fill(part, std::byte{0});
  device_.read("x", part, 5);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 5));
}

TEST_P(device, content_beyond_the_end_is_refused) {
  std::vector<std::byte> two(2);
  const std::size_t end = kElements;
  device_.write("x", two, end - 2);
  device_.read("x", two, end - 2);
  for (const bool writes : {true, false}) {
    const std::string said = error_of(
        [&] { writes ? device_.write("x", two, end - 1) : device_.read("x", two, end - 1); });
    EXPECT_TRUE(said.starts_with(fmt::format("x has {} bytes, 2 ", end))) << said;
    EXPECT_NE(said.find("(broken: from + content.size() <= place.bytes) at "), std::string::npos);
  }
}

TEST(device_memory, regions_follow_each_other) {
  const auto backend = make_host_backend();
  const PersistentLayout layout = one_tensor(Region::persistent);
  const Device device(*backend, layout, 100, 64, 128);
  const std::size_t persistent = align_up(layout.bytes(), 4096);
  EXPECT_EQ(device.base(Region::persistent), device.device_arena().data());
  EXPECT_EQ(device.base(Region::transient), device.device_arena().data() + persistent);
  EXPECT_EQ(device.device_arena().size(), persistent + 4096 + 128);
  EXPECT_EQ(device.bytes(Region::persistent), persistent);
  EXPECT_EQ(device.bytes(Region::transient), 100U);
  EXPECT_EQ(device.bytes(Region::host), 64U);
}

TEST(device_turns, another_waits_for_all_work_and_the_same_for_none) {
  const auto backend = make_host_backend();
  Device device(*backend, one_tensor(Region::persistent), 64, 64);
  Queue& copies = device.queue({"d2h", Lane::d2h});
  Queue& compute = device.queue({"compute", Lane::compute});
  EXPECT_EQ(&compute, &device.queue({"compute", Lane::compute}));
  const int one = 1, other = 2;
  Gate first, second;
  device.take_turn(&one, compute);
  copies.enqueue([&] { first.pass(); });
  device.take_turn(&one, compute);
  compute.synchronize();  // reached: the same one waits for no copy

  bool copied = false, seen = false;
  copies.enqueue([&] {
    second.pass();
    copied = true;
  });
  device.take_turn(&other, compute);
  compute.enqueue([&] { seen = copied; });
  first.open();
  let_mistakes_happen();
  second.open();
  device.synchronize();
  EXPECT_TRUE(seen);
  EXPECT_TRUE(copied);
}

}  // namespace
}  // namespace stowage::execution
