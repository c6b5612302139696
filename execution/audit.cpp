#include "execution/audit.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "execution/contents.hpp"
#include "execution/error.hpp"
#include "execution/persistent.hpp"
#include "execution/plan_shape.hpp"

namespace stowage::execution {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::byte kPoison{0xff};  ///< as fp64, fp32 and bf16: NaN
constexpr std::byte kCanary{0xa5};

/// What the fault handler may touch: plain atomics, set while an audit is open.
struct Watch {
  std::atomic<std::byte*> begin{nullptr};
  std::atomic<std::size_t> bytes{0};
  std::atomic<std::byte*> fault{nullptr};  ///< first undeclared address
};

Watch& watch() {
  static Watch instance;
  return instance;
}

struct sigaction& previous_handler() {
  static struct sigaction action;
  return action;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  Watch& w = watch();
  auto* address = static_cast<std::byte*>(info->si_addr);
  std::byte* begin = w.begin.load();
  if (begin == nullptr || address < begin || address >= begin + w.bytes.load()) {
    const struct sigaction& previous = previous_handler();
    if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr)
      return previous.sa_sigaction(signal, info, context);
    ::signal(signal, SIG_DFL);
    return;
  }
  std::byte* none = nullptr;
  w.fault.compare_exchange_strong(none, address);
  auto* page = begin + (address - begin) / static_cast<std::ptrdiff_t>(kPage) *
                           static_cast<std::ptrdiff_t>(kPage);
  ::mprotect(page, kPage, PROT_READ | PROT_WRITE);
}

/// A tensor that is used whole has what is left of its last page to itself, or of its part of one.
template <class Operand>
std::size_t behind(const Operand& operand) {
  return operand.whole ? align_up(operand.bytes, operand.room) - operand.bytes : 0;
}

/// Bytes between the parts of a bucket and behind the last: they have no value.
std::vector<Bytes> padding_of(const Program& program, Tensor tensor, int buffer) {
  std::vector<Bytes> padding;
  std::size_t at = 0;
  for (const Use& part : program.uses(tensor, {}, Access::read)) {
    const Bytes bytes = bytes_of(program, part, buffer);
    if (at < bytes.begin) padding.push_back({at, bytes.begin});
    at = bytes.end;
  }
  const std::size_t all = bytes_of(program, {tensor, Access::read, {}}, buffer).end;
  if (at < all) padding.push_back({at, all});
  return padding;
}

void protect(std::byte* begin, std::size_t bytes, int how) {
  const auto at = reinterpret_cast<std::uintptr_t>(begin) / kPage * kPage;
  const auto end = align_up(reinterpret_cast<std::uintptr_t>(begin) + bytes, kPage);
  STOWAGE_ASSERT(::mprotect(reinterpret_cast<void*>(at), end - at, how) == 0,
                 "mprotect of {} bytes failed", end - at);
}

}  // namespace

Audit::Audit(std::span<std::byte> arena) : arena_(arena) {
  watch().bytes = arena.size();
  watch().begin = arena.data();
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSEGV, &action, &previous_handler());
}

Audit::~Audit() {
  ::mprotect(arena_.data(), align_up(arena_.size(), kPage), PROT_READ | PROT_WRITE);
  watch().begin = nullptr;
  ::sigaction(SIGSEGV, &previous_handler(), nullptr);
}

void Audit::open(const Program& program, const Plan& plan, const Step& step,
                 std::span<void* const> addresses) {
  program_ = &program;
  plan_ = &plan;
  operands_.clear();
  std::vector<std::span<std::byte>> padding;
  const auto add = [&](std::size_t index, Bytes bytes, bool reads, bool writes) {
    const Place& place = plan.places[step.places[index]];
    auto* begin = static_cast<std::byte*>(addresses[index]);
    if (place.region == Region::host) return;
    if (place.region == Region::transient)
      transient_base_ = begin - arena_.data() -
                        static_cast<std::ptrdiff_t>(place.offset + bytes.begin - place.first);
    const bool whole = bytes.end - bytes.begin == place.bytes;
    const TensorInfo& info = program.info(place.tensor);
    const std::size_t grain = kBucketGrain * size_bytes(info.buffers[place.buffer].dtype);
    const bool kept = place.region == Region::persistent;
    operands_.push_back({begin, bytes.end - bytes.begin, info.name, reads, writes, whole,
                         kept ? std::min(kPage, grain) : kPage});
  };
  if (is_copy(step)) {
    if (counts_rows(step)) add(2, {0, plan.places[step.places[2]].bytes}, true, false);
    const std::size_t all = plan.places[step.places[0]].bytes;
    const std::size_t first = plan.places[step.places[0]].first;
    add(0, {first, first + all}, true, false);
    add(1, {first, first + all}, false, true);
  } else {
    const Op& op = program.ops()[step.op];
    std::size_t next = 0;
    for_each_operand(program, op, step, [&](const Use& use, int place) {
      const int buffer = plan.places[place].buffer;
      const Bytes bytes = bytes_of(program, use, buffer);
      for (const auto& [begin, end] : padding_of(program, use.tensor, buffer)) {
        const std::size_t first = align_up(begin, kPage), last = end / kPage * kPage;
        auto* at = static_cast<std::byte*>(addresses[next]) + first - bytes.begin;
        if (plan.places[place].region != Region::host && first < last)
          padding.emplace_back(at, last - first);
      }
      add(next++, bytes, use.access != Access::write, use.access != Access::read);
    });
  }
  watch().fault = nullptr;
  for (const Operand& operand : operands_) {
    if (operand.writes && !operand.reads)
      std::memset(operand.begin, static_cast<int>(kPoison), operand.bytes);
    std::memset(operand.begin + operand.bytes, static_cast<int>(kCanary), behind(operand));
  }
  protect(arena_.data(), arena_.size(), PROT_NONE);
  for (const std::span<std::byte> pages : padding) protect(pages.data(), pages.size(), PROT_READ);
  // A tensor may be an operand twice: what writes is opened last.
  for (const bool writes : {false, true})
    for (const Operand& operand : operands_)
      if (operand.writes == writes)
        protect(operand.begin, operand.bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ);
}

void Audit::close(const std::string& step) {
  protect(arena_.data(), arena_.size(), PROT_READ | PROT_WRITE);
  if (const std::byte* fault = watch().fault.exchange(nullptr))
    throw Error(Exit::runtime, fmt::format("{} touched bytes that it does not declare: {}", step,
                                           describe(fault)));
  for (const Operand& operand : operands_) {
    const std::byte* end = operand.begin + operand.bytes + behind(operand);
    if (std::any_of(static_cast<const std::byte*>(operand.begin + operand.bytes), end,
                    [](std::byte b) { return b != kCanary; }))
      throw Error(Exit::runtime,
                  fmt::format("{} wrote beyond the end of {}", step, operand.tensor));
  }
}

std::string Audit::describe(const std::byte* address) const {
  const std::ptrdiff_t at = address - arena_.data();
  std::string found = "bytes of no tensor";
  for (const Operand& operand : operands_)
    if (address >= operand.begin && address < operand.begin + operand.bytes)
      return fmt::format("a write to {}, byte {}, which it only reads", operand.tensor,
                         address - operand.begin);
  for (const Place& place : plan_->places) {
    if (place.region == Region::host) continue;
    const std::ptrdiff_t base = place.region == Region::persistent ? 0 : transient_base_;
    const std::ptrdiff_t begin = base + static_cast<std::ptrdiff_t>(place.offset);
    if (at >= begin && at < begin + static_cast<std::ptrdiff_t>(place.bytes))
      found = fmt::format("byte {} of {}", at - begin, program_->info(place.tensor).name);
  }
  return fmt::format("{} (arena byte {})", found, at);
}

}  // namespace stowage::execution
