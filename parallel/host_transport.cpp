#include "parallel/host_transport.hpp"

#include <algorithm>
#include <vector>

#include "execution/error.hpp"

namespace stowage::parallel {
namespace {

/// MPI's counts are int: longer messages go in pieces.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr int kTag = 0;  // messages between two ranks keep their order

void move_now(const Communicator& ranks, const std::vector<Transfer>& transfers) {
  std::vector<MPI_Request> requests;
  for (const Transfer& transfer : transfers)
    for (std::size_t done = 0; done < transfer.bytes; done += kMostBytes) {
      auto* data = static_cast<std::byte*>(transfer.data) + done;
      const int bytes = narrow<int>(std::min(kMostBytes, transfer.bytes - done));
      MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
      if (transfer.sends)
        STOWAGE_MPI(MPI_Isend(data, bytes, MPI_BYTE, transfer.peer, kTag, ranks.handle(), &request));
      else
        STOWAGE_MPI(MPI_Irecv(data, bytes, MPI_BYTE, transfer.peer, kTag, ranks.handle(), &request));
    }
  for (MPI_Request& request : requests) wait(request);
}

class HostTransport final : public Transport {
 public:
  HostTransport(const Communicator& ranks, std::string group)
      : group_(std::move(group)), ranks_(std::make_shared<Communicator>(ranks.duplicate())) {}

  const std::string& group() const override { return group_; }
  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  int announce(const std::string&) override { return 0; }  // MPI's errors name the call
  void begin(execution::Queue&, int) override {}
  void end(execution::Queue&) override {}
  void move(execution::Queue& queue, std::span<const Transfer> transfers) override {
    STOWAGE_ASSERT(queue.stream() == nullptr, "a collective of the host on a GPU's queue");
    queue.enqueue([ranks = ranks_, all = std::vector(transfers.begin(), transfers.end())] {
      move_now(*ranks, all);
    });
  }

 private:
  std::string group_;
  std::shared_ptr<Communicator> ranks_;  ///< shared with closures that wait in queues
};

}  // namespace

std::shared_ptr<Transport> make_host_transport(const Communicator& ranks, std::string group) {
  return std::make_shared<HostTransport>(ranks, std::move(group));
}

}  // namespace stowage::parallel
