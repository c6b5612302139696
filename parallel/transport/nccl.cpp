#include "parallel/transport/nccl.hpp"

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "execution/error.hpp"
#include "execution/timing.hpp"

namespace stowage::parallel {

using std::chrono::microseconds;

void throw_nccl_failed(std::string_view call, ncclResult_t code, ncclComm_t communicator,
                       std::source_location at) {
  const char* last = ncclGetLastError(communicator);
  std::string text = ncclGetErrorString(code);
  if (last != nullptr && *last != '\0') text += fmt::format(" ({})", last);
  execution::throw_call_failed("NCCL", call, static_cast<long long>(code), text, at);
}

std::string nccl_version() {
  int version = 0;
  STOWAGE_NCCL(nullptr, ncclGetVersion(&version));
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

namespace {

/// Sets a variable, or with no value takes it away, unless it is the user's.
void choose(const char* variable, const std::string& value) {
  static std::map<std::string, std::string> ours;
  const char* const now = std::getenv(variable);
  if (now != nullptr && ours[variable] != now) return;
  ours[variable] = value;
  if (value.empty())
    (void)unsetenv(variable);
  else
    (void)setenv(variable, value.c_str(), 1);
}

}  // namespace

void pin_nccl(const NcclOptions& options) {
  choose("NCCL_ALGO", options.algorithm);
  choose("NCCL_PROTO", options.protocol);
  choose("NCCL_GRAPH_REGISTER", "0");  // what a graph does must not differ from eager
}

NcclCommunicator::NcclCommunicator(const Communicator& ranks, const NcclOptions& options)
    : patience_s_(options.patience_s) {
  pin_nccl(options);
  ncclUniqueId id;
  std::memset(&id, 0, sizeof id);
  if (ranks.rank() == 0) STOWAGE_NCCL(nullptr, ncclGetUniqueId(&id));
  const std::string text = ranks.broadcast({id.internal, sizeof id.internal});
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (options.channels > 0) config.minCTAs = config.maxCTAs = options.channels;
  try {
    STOWAGE_NCCL(handle_,
                 ncclCommInitRankConfig(&handle_, ranks.size(), id, ranks.rank(), &config));
    settle("ncclCommInitRankConfig");
  } catch (...) {
    if (handle_ != nullptr) (void)ncclCommAbort(handle_);
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() { (void)ncclCommAbort(handle_); }

void NcclCommunicator::settle(std::string_view call) const {
  const double start_s = execution::steady_seconds();
  ncclResult_t state = ncclInProgress;
  while (true) {
    STOWAGE_NCCL(handle_, ncclCommGetAsyncError(handle_, &state));
    if (state != ncclInProgress) break;
    if (execution::steady_seconds() - start_s > patience_s_)
      throw execution::Error(execution::Exit::runtime,
                             fmt::format("NCCL call {} did not end in {} s", call, patience_s_));
    std::this_thread::sleep_for(microseconds(20));
  }
  if (state != ncclSuccess)
    throw_nccl_failed(call, state, handle_, std::source_location::current());
}

std::string NcclCommunicator::error() const {
  ncclResult_t state = ncclSuccess;
  if (ncclCommGetAsyncError(handle_, &state) != ncclSuccess) return "NCCL gives no state";
  if (state == ncclSuccess || state == ncclInProgress) return {};
  return fmt::format("NCCL: {}", ncclGetErrorString(state));
}

}  // namespace stowage::parallel
