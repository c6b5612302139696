#include "execution/error.hpp"
#include "parallel/collectives.hpp"

namespace stowage::parallel {
namespace {

/// MPI calls as closures of a host queue, whose thread blocks in them.
class HostCollectives final : public Collectives {
 public:
  HostCollectives(const Communicator& ranks, std::string group)
      : group_(std::move(group)), reduce_(std::make_shared<OrderedReduce>(ranks)) {}

  const std::string& group() const override { return group_; }
  int rank() const override { return reduce_->rank(); }
  int size() const override { return reduce_->size(); }

  int announce(const std::string&) override { return 0; }  // MPI's errors name the call
  void all_reduce(execution::Queue& queue, int, void* data, std::int64_t count,
                  execution::Dtype dtype, Reduction reduction) override {
    STOWAGE_ASSERT(queue.stream() == nullptr, "a collective of the host on a GPU's queue");
    queue.enqueue([reduce = reduce_, data, count, dtype, reduction] {
      reduce->all_reduce(data, count, dtype, reduction);
    });
  }

  void all_gather(execution::Queue& queue, void* data, std::int64_t count,
                  execution::Dtype dtype) override {
    queue.enqueue([reduce = reduce_, data, count, dtype] {
      const auto share = static_cast<std::size_t>(count / reduce->size()) * execution::size_bytes(dtype);
      reduce->gather(data, share);
    });
  }

 private:
  std::string group_;
  std::shared_ptr<OrderedReduce> reduce_;  ///< shared with closures that wait in queues
};

}  // namespace

std::shared_ptr<Collectives> make_host_collectives(const Communicator& ranks, std::string group) {
  return std::make_shared<HostCollectives>(ranks, std::move(group));
}

}  // namespace stowage::parallel
