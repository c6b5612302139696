// Ranks that share masters and moments out compute what ranks that do not compute, bit by bit, in
// buckets of any size: losses, norms, parameters and states after some steps.
#include <gtest/gtest.h>

#include <map>
#include <span>

#include "parallel/connect.hpp"
#include "parallel/host_transport.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

constexpr int kSteps = 3;

/// What a run leaves, whole: by name, the elements that every rank has, put together.
struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, std::string> state;
  std::size_t persistent_bytes = 0;
};

class Sharing {
 public:
  const parallel::Communicator world = parallel::Communicator::world();

  Outcome run(Dtype dtype, bool zero, std::int64_t bucket, int microbatches) const {
    layers::TrainerOptions options = tiny_options("M*-E", dtype);
    options.sharing.ranks = connect();
    options.sharing.zero = zero;
    options.state.bucket_elements = bucket;
    options.step.microbatches = microbatches;
    TinyRun tiny(options);
    Outcome outcome;
    for (int step = 0; step < kSteps; ++step) {
      tiny.train(step * world.size() + world.rank(), 1e-2);
      outcome.losses.push_back(tiny.loss()[0]);
      outcome.norms.push_back(tiny.grad_norm());
    }
    const execution::PersistentLayout& layout = tiny.trainer().plan().layout();
    outcome.persistent_bytes = layout.bytes();
    for (const execution::Bucket& buckets : layout.buckets())
      for (const std::string& name : buckets.tensors)
        if (layout.whole(name).lifetime != execution::Lifetime::gradient)
          outcome.state[name] = whole(tiny, name, zero);
    return outcome;
  }

  parallel::Ranks connect() const {
    return parallel::connect(world, parallel::fit_grid(world.size()),
                             parallel::make_host_transport);
  }

 private:
  /// A tensor's bytes; on rank 0 only.
  std::string whole(TinyRun& tiny, const std::string& name, bool zero) const {
    const execution::PersistentLayout& layout = tiny.trainer().plan().layout();
    std::string mine;
    if (layout.has(name)) {
      mine.resize(layout.info(name).bytes());
      tiny.trainer().device().read(name, std::as_writable_bytes(std::span(mine)));
    }
    const bool shared = zero && layout.bucket_of(name).shards.parts > 1;
    if (!shared) return mine;
    const std::size_t size = execution::size_bytes(layout.whole(name).buffers[0].dtype);
    if (layout.whole(name).lifetime == execution::Lifetime::parameter) {
      const execution::Range own = layout.held(name, world.rank());
      mine = mine.substr(static_cast<std::size_t>(own.begin) * size,
                         static_cast<std::size_t>(own.end - own.begin) * size);
    }
    std::string all;
    for (const std::string& part : world.gather(mine)) all += part;
    return all;
  }
};

TEST(sharing, zero_and_bucket_sizes_do_not_change_a_bit) {
  const Sharing ranks;
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp64})
    for (const int microbatches : {1, 3}) {
      const Outcome plain = ranks.run(dtype, false, 400, microbatches);
      for (const bool zero : {false, true})
        for (const std::int64_t bucket : {1, 400, 1 << 20}) {
          SCOPED_TRACE(testing::Message() << name(dtype) << " zero " << zero << " buckets of "
                                          << bucket << ", microbatches " << microbatches);
          const Outcome other = ranks.run(dtype, zero, bucket, microbatches);
          EXPECT_EQ(other.losses, plain.losses);
          EXPECT_EQ(other.norms, plain.norms);
          if (ranks.world.rank() > 0) continue;
          for (const auto& [tensor, bytes] : plain.state)
            EXPECT_EQ(other.state.at(tensor), bytes) << tensor;
        }
    }
}

}  // namespace
}  // namespace stowage::ctest
