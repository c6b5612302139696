// NVML's functions, as its documentation declares them, about the machine of fake_nvml.hpp.
#include "fake_nvml.hpp"

#include <cstdio>

using stowage::run::test::fake_gpus;
using stowage::run::test::FakeGpu;
using stowage::run::test::FakeLink;

namespace {

constexpr int kWorked = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;

int give(unsigned value, unsigned* out) {
  if (value == 0) return kNotSupported;
  *out = value;
  return kWorked;
}

const FakeLink* link_of(const FakeGpu* gpu, unsigned link) {
  return link < gpu->links.size() ? &gpu->links[link] : nullptr;
}

struct PciInfo {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};

struct FieldValue {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUsec;
  int valueType, nvmlReturn;
  union {
    double dVal;
    unsigned uiVal;
    unsigned long long ullVal;
  } value;
};

}  // namespace

std::vector<FakeGpu>& stowage::run::test::fake_gpus() {
  static std::vector<FakeGpu> gpus;
  return gpus;
}

extern "C" {

int nvmlInit_v2() { return kWorked; }
int nvmlShutdown() { return kWorked; }

int nvmlDeviceGetHandleByUUID(const char* uuid, FakeGpu** gpu) {
  for (FakeGpu& one : fake_gpus())
    if (one.uuid == uuid) {
      *gpu = &one;
      return kWorked;
    }
  return kNotFound;
}

int nvmlDeviceGetNvLinkState(FakeGpu* gpu, unsigned link, int* on) {
  const FakeLink* found = link_of(gpu, link);
  if (found == nullptr) return kNotSupported;
  *on = found->on;
  return kWorked;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(FakeGpu* gpu, unsigned link, int* kind) {
  const FakeLink* found = link_of(gpu, link);
  if (found == nullptr || found->other_kind < 0) return kNotSupported;
  *kind = found->other_kind;
  return kWorked;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(FakeGpu* gpu, unsigned link, PciInfo* pci) {
  const FakeLink* found = link_of(gpu, link);
  if (found == nullptr || found->other_pci.empty()) return kNotSupported;
  std::snprintf(pci->busId, sizeof pci->busId, "0000%s", found->other_pci.c_str());
  std::sscanf(found->other_pci.c_str(), "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
  return kWorked;
}

int nvmlDeviceGetTopologyCommonAncestor(FakeGpu* gpu, FakeGpu*, int* level) {
  if (gpu->ancestor < 0) return kNotSupported;
  *level = gpu->ancestor;
  return kWorked;
}

int nvmlDeviceGetFieldValues(FakeGpu* gpu, int count, FieldValue* values) {
  constexpr unsigned kNvlinkGetSpeed = 164;
  for (int i = 0; i < count; ++i) {
    const bool known = values[i].fieldId == kNvlinkGetSpeed && link_of(gpu, values[i].scopeId);
    values[i].nvmlReturn = known ? kWorked : kNotSupported;
    values[i].value.uiVal = known ? 26562 : 0xffffffff;
  }
  return kWorked;
}

int nvmlDeviceGetApplicationsClock(FakeGpu* gpu, int, unsigned* mhz) {
  return give(gpu->set_clock, mhz);
}

int nvmlDeviceGetDefaultApplicationsClock(FakeGpu* gpu, int, unsigned* mhz) {
  return give(gpu->sold_clock, mhz);
}

int nvmlDeviceGetMaxCustomerBoostClock(FakeGpu* gpu, int, unsigned* mhz) {
  return give(gpu->boost_clock, mhz);
}

int nvmlDeviceGetCurrentClocksEventReasons(FakeGpu* gpu, unsigned long long* reasons) {
  *reasons = gpu->events;
  return kWorked;
}

int nvmlDeviceGetTotalEccErrors(FakeGpu* gpu, int type, int counter, unsigned long long* count) {
  constexpr int kUncorrected = 1, kVolatile = 0;
  *count = type == kUncorrected && counter == kVolatile ? gpu->errors : 999;
  return kWorked;
}

}  // extern "C"
