// What is read from NVML, on a made-up machine: no GPU is needed.
#include "run/measure/nvlinks.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "fake_nvml.hpp"
#include "run/measure/gpu_monitor.hpp"

namespace stowage::run {
namespace {

using test::fake_gpus;
using test::FakeLink;

const std::string kFirst = "0000:3b:00.0", kSecond = "0000:5e:00.0";

/// Two GPUs without a link between them.
class FakeNvml : public testing::Test {
 protected:
  void SetUp() override {
    fake_gpus() = {{.uuid = "GPU-1", .pci = kFirst}, {.uuid = "GPU-2", .pci = kSecond}};
  }
  static std::string path() {
    const Nvml nvml;
    const Nvml::Device gpu = nvml.device("GPU-1");
    return gpu_path(nvml, gpu, read_nvlinks(nvml, gpu), nvml.device("GPU-2"), kSecond);
  }
};

TEST_F(FakeNvml, gpus_behind_switches_share_the_links_that_both_have) {
  fake_gpus()[0].links.assign(18, FakeLink{});
  fake_gpus()[1].links.assign(18, FakeLink{});
  EXPECT_EQ(path(), "NV18 by switch");
  fake_gpus()[1].links[3].on = fake_gpus()[1].links[7].on = 0;
  EXPECT_EQ(path(), "NV16 by switch");
  const Nvml nvml;
  const NvLinks links = read_nvlinks(nvml, nvml.device("GPU-2"));
  EXPECT_EQ(links.up, 16);
  EXPECT_EQ(links.down, 2);
  EXPECT_EQ(links.to_switch, 16);
  EXPECT_NEAR(links.bytes_per_s, 16 * 26.562e9, 1e6);
}

// What the other end is said to be there is a place that no device of this host has.
TEST_F(FakeNvml, switches_that_a_virtual_machine_is_not_shown_are_switches) {
  const FakeLink link{.other_kind = -1, .other_pci = "ffff:ff:1f.0"};
  for (auto& gpu : fake_gpus()) gpu.links.assign(18, link);
  EXPECT_EQ(path(), "NV18 by switch");
}

TEST_F(FakeNvml, direct_links_are_counted_for_each_pair) {
  fake_gpus()[0].links = {{.other_kind = 0, .other_pci = kSecond},
                          {.other_kind = 0, .other_pci = kSecond},
                          {.on = 0, .other_kind = 0, .other_pci = kSecond},
                          {.other_kind = 0, .other_pci = "0000:86:00.0"}};
  EXPECT_EQ(path(), "NV2");
}

TEST_F(FakeNvml, gpus_without_links_have_a_pcie_path) {
  EXPECT_EQ(path(), "") << "nobody says";
  for (const auto& [level, name] :
       {std::pair{10, "PIX"}, {20, "PXB"}, {30, "PHB"}, {40, "NODE"}, {50, "SYS"}, {60, ""}}) {
    fake_gpus()[0].ancestor = level;
    EXPECT_EQ(path(), name);
  }
  fake_gpus().pop_back();
  EXPECT_EQ(path(), "") << "the other one is not shown";
}

TEST_F(FakeNvml, only_settings_hold_a_clock) {
  const auto limit_hz = [] { return GpuMonitor("GPU-1").clock_limit_hz(); };
  auto& gpu = fake_gpus()[0];
  EXPECT_TRUE(std::isnan(limit_hz()));
  gpu.set_clock = 1095;
  EXPECT_TRUE(std::isnan(limit_hz())) << "nobody says what it is sold with";
  gpu.sold_clock = 1095;
  EXPECT_TRUE(std::isnan(limit_hz())) << "as it is sold";
  gpu.set_clock = 1200;
  EXPECT_EQ(limit_hz(), 1.2e9);
  gpu.boost_clock = 900;
  EXPECT_EQ(limit_hz(), 9e8);
  gpu.set_clock = 0;
  EXPECT_EQ(limit_hz(), 9e8);
}

TEST_F(FakeNvml, what_holds_a_clock_down_is_named) {
  const auto events = [](unsigned long long bits) {
    fake_gpus()[0].events = bits;
    return GpuMonitor("GPU-1").clock_events();
  };
  EXPECT_EQ(events(0), "");
  EXPECT_EQ(events(0x1), "") << "nothing to do";
  EXPECT_EQ(events(0x4), "") << "the power limit";
  EXPECT_EQ(events(0x88), "hardware slowdown, power brake");
  EXPECT_EQ(events(0x1ff),
            "clock setting, hardware slowdown, sync boost, thermal slowdown, hardware thermal "
            "slowdown, power brake");
}

TEST_F(FakeNvml, errors_are_those_that_were_not_corrected) {
  fake_gpus()[1].errors = 7;
  EXPECT_EQ(GpuMonitor("GPU-1").uncorrected_errors(), 0);
  EXPECT_EQ(GpuMonitor("GPU-2").uncorrected_errors(), 7);
}

TEST_F(FakeNvml, an_unknown_gpu_says_nothing) {
  const GpuMonitor monitor("GPU-3");
  EXPECT_EQ(monitor.device(), nullptr);
  EXPECT_TRUE(std::isnan(monitor.highest_clock_hz()));
  EXPECT_TRUE(std::isnan(monitor.clock_limit_hz()));
  EXPECT_EQ(monitor.clock_events(), "");
  EXPECT_EQ(monitor.uncorrected_errors(), 0);
  EXPECT_EQ(read_nvlinks(monitor.nvml(), monitor.device()).up, 0);
  EXPECT_EQ(monitor.driver_version(), "") << "a function that the library does not have";
}

}  // namespace
}  // namespace stowage::run
