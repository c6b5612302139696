#include "execution/backend.hpp"

#include <atomic>

#include "execution/host/arena.hpp"
#include "execution/host/compute_thread.hpp"
#include "execution/host/queue.hpp"

namespace stowage::execution {
namespace host {
namespace {

class HostBackend final : public Backend {
 public:
  explicit HostBackend(const HostOptions& options) : state_(std::make_shared<BackendState>()) {
    state_->options = options;
  }

  std::string_view name() const override { return "host"; }

  std::unique_ptr<Arena> allocate(MemoryKind kind, std::size_t bytes) override {
    auto arena = std::make_unique<HostArena>(kind, bytes);
    ++allocations_;
    return arena;
  }

  std::unique_ptr<Queue> make_queue(Lane lane, std::string queue_name) override {
    auto worker = lane == Lane::compute ? compute_thread() : std::make_shared<Worker>(queue_name);
    return std::make_unique<HostQueue>(state_, std::move(worker), std::move(queue_name));
  }

  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(state_); }

  std::unique_ptr<TimedEvent> make_timed_event() override {
    return std::make_unique<HostTimedEvent>(state_);
  }

  void begin_capture(Queue& queue) override { host_queue(queue).begin_capture(); }

  std::unique_ptr<Graph> end_capture(Queue& queue) override {
    return host_queue(queue).end_capture();
  }

  std::uint64_t allocations() const override { return allocations_; }

  std::uint64_t waits() const override {
    const Lock lock(schedule_mutex());
    return state_->waits;
  }

 private:
  std::shared_ptr<BackendState> state_;
  std::atomic<std::uint64_t> allocations_ = 0;
};

}  // namespace

std::shared_ptr<Worker> compute_thread() {
  static const auto worker = std::make_shared<Worker>("compute", start_kokkos, stop_kokkos);
  return worker;
}

}  // namespace host

std::unique_ptr<Backend> make_host_backend(const HostOptions& options) {
  return std::make_unique<host::HostBackend>(options);
}

}  // namespace stowage::execution
