#pragma once

#include <string>
#include <vector>

/// A machine for tests, shown by a library that has NVML's name and interface.
namespace stowage::run::test {

struct FakeLink {
  int on = 1;
  int other_kind = 2;  ///< what is at the other end: 0 a GPU, 2 a switch, -1 nobody says
  std::string other_pci = {};
};

struct FakeGpu {
  std::string uuid, pci;
  std::vector<FakeLink> links = {};
  int ancestor = -1;         ///< level of the PCIe path to every other GPU; -1: not said
  unsigned set_clock = 0;    ///< MHz of applications, 0: not said
  unsigned sold_clock = 0;   ///< MHz of applications as the board is sold
  unsigned boost_clock = 0;  ///< MHz that boosting is limited to
  unsigned long long events = 0;
  unsigned long long errors = 0;
};

/// What the library shows; `Nvml` finds the library already loaded.
std::vector<FakeGpu>& fake_gpus();

}  // namespace stowage::run::test
