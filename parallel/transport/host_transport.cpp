#include "parallel/transport/host_transport.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "execution/error.hpp"
#include "parallel/watch/watchdog.hpp"

namespace stowage::parallel {
namespace {

/// MPI's counts are int: longer messages go in pieces.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr double kPatienceS = 600;
constexpr int kTag = 0;  // messages between two ranks keep their order

void move_now(const Communicator& ranks, const std::vector<Transfer>& transfers) {
  std::vector<MPI_Request> requests;
  for (const Transfer& transfer : transfers)
    for (std::size_t done = 0; done < transfer.bytes; done += kMostBytes) {
      auto* data = static_cast<std::byte*>(transfer.data) + done;
      const int bytes = narrow<int>(std::min(kMostBytes, transfer.bytes - done));
      MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
      if (transfer.sends)
        STOWAGE_MPI(
            MPI_Isend(data, bytes, MPI_BYTE, transfer.peer, kTag, ranks.handle(), &request));
      else
        STOWAGE_MPI(
            MPI_Irecv(data, bytes, MPI_BYTE, transfer.peer, kTag, ranks.handle(), &request));
    }
  for (MPI_Request& request : requests) wait(request);
}

class HostTransport final : public Transport {
 public:
  HostTransport(const Communicator& ranks, std::string group, double patience_s)
      : group_(std::move(group)),
        ranks_(std::make_shared<Communicator>(ranks.duplicate())),
        words_(std::make_shared<ProgressWords>()),
        watchdog_(*words_, group_, Watchdog::Seconds(patience_s), end_job, {},
                  std::make_unique<HangReport>(ranks)) {}

  const std::string& group() const override { return group_; }
  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  int announce(const std::string& name) override { return watchdog_.announce(name); }

  // The words are those that the GPU writes elsewhere, in the same order; only the queue's thread
  // writes them.
  void begin(execution::Queue& queue, int index) override {
    queue.enqueue([words = words_, index] {
      std::atomic_ref(words->index).store(static_cast<std::uint64_t>(index));
      std::atomic_ref(words->begun).fetch_add(1);
    });
  }
  void end(execution::Queue& queue) override {
    queue.enqueue([words = words_] { std::atomic_ref(words->ended).fetch_add(1); });
  }
  void move(execution::Queue& queue, std::span<const Transfer> transfers) override {
    STOWAGE_ASSERT(queue.stream() == nullptr, "a collective of the host on a GPU's queue");
    queue.enqueue([ranks = ranks_, all = std::vector(transfers.begin(), transfers.end())] {
      move_now(*ranks, all);
    });
  }

 private:
  std::string group_;
  std::shared_ptr<Communicator> ranks_;  ///< shared with closures that wait in queues, as the words
  std::shared_ptr<ProgressWords> words_;
  Watchdog watchdog_;
};

}  // namespace

std::shared_ptr<Transport> make_host_transport(const Communicator& ranks,
                                               const std::string& group) {
  return host_transports(kPatienceS)(ranks, group);
}

MakeTransport host_transports(double patience_s) {
  return [patience_s](const Communicator& ranks, const std::string& group) {
    return std::make_shared<HostTransport>(ranks, group, patience_s);
  };
}

}  // namespace stowage::parallel
