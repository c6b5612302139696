// Ranks that share masters and moments out compute what ranks that do not compute, bit by bit, in
// buckets of any size: losses, norms, parameters and states after some steps. They hold a share of
// masters and moments each.
#include <gtest/gtest.h>

#include <map>
#include <span>

#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

constexpr int kSteps = 3;
constexpr std::int64_t kOneBucket = 1 << 20;  ///< elements: all of a group's

/// What a run leaves, whole: by name, the elements that every rank has, put together.
struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, std::string> state;
  execution::PersistentLayout layout;  ///< of this rank
};

/// Persistent bytes of each of so many ranks if they share out what a rank alone lays out: buckets
/// are padded to whole shares, and a rank holds one of masters and moments, all else in full.
std::size_t shared_bytes(const execution::PersistentLayout& alone, int ranks) {
  std::size_t sum = 0;
  for (const execution::Bucket& bucket : alone.buckets()) {
    std::int64_t held = bucket.elements;
    if (!bucket.group.empty()) {
      const std::int64_t unit = execution::kBucketGrain * ranks;
      held = (bucket.elements + unit - 1) / unit * unit;
      const execution::Lifetime lifetime = alone.whole(bucket.tensors.front()).lifetime;
      if (lifetime == execution::Lifetime::optimizer_state) held /= ranks;
    }
    sum += execution::align_up(static_cast<std::size_t>(held) * size_bytes(bucket.dtype));
  }
  return sum;
}

class Sharing {
 public:
  const parallel::Communicator world = parallel::Communicator::world();

  Outcome run(Dtype dtype, bool zero, std::int64_t bucket, int microbatches,
              const layers::Optimizer& optimizer = layers::kAdamw,
              const layers::StateFormat& format = layers::kStatesOfSums) const {
    forecast::TrainerOptions options = tiny_options(every_kind(), dtype);
    options.state.optimizer = &optimizer;
    options.state.type = {&format};
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
    outcome.layout = layout;
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

void expect_equal(const Sharing& ranks, Dtype dtype, int microbatches,
                  const layers::Optimizer& optimizer,
                  const layers::StateFormat& format = layers::kStatesOfSums) {
  const Outcome plain = ranks.run(dtype, false, 400, microbatches, optimizer, format);
  std::map<std::int64_t, execution::PersistentLayout> whole;  // by elements of a bucket
  for (const bool zero : {false, true})
    for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{400}, kOneBucket}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << " zero " << zero << " buckets of " << bucket
                                      << ", microbatches " << microbatches << " " << optimizer.name
                                      << ", states " << format.name);
      const Outcome other = ranks.run(dtype, zero, bucket, microbatches, optimizer, format);
      EXPECT_EQ(other.losses, plain.losses);
      EXPECT_EQ(other.norms, plain.norms);
      if (!zero) whole[bucket] = other.layout;
      const std::size_t in_full = whole.at(bucket).bytes();
      EXPECT_EQ(other.layout.bytes(),
                zero ? shared_bytes(whole.at(bucket), ranks.world.size()) : in_full);
      if (zero && bucket == kOneBucket && ranks.world.size() > 1) {
        EXPECT_LT(other.layout.bytes(), in_full);
      }
      if (ranks.world.rank() > 0) continue;
      for (const auto& [tensor, bytes] : plain.state)
        EXPECT_EQ(other.state.at(tensor), bytes) << tensor;
    }
}

TEST(sharing, zero_and_bucket_sizes_do_not_change_a_bit) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp64})
    for (const int microbatches : {1, 3})
      expect_equal(Sharing(), dtype, microbatches, layers::kAdamw);
}

// Nor where each element is rounded by random bits of its own.
TEST(sharing, zero_and_bucket_sizes_change_no_bit_of_states_of_three_bytes) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp32})
    expect_equal(Sharing(), dtype, 1, layers::kAdamw, layers::kStatesOf3Bytes);
}

// Of Muon neither, which puts matrices together out of shards.
TEST(sharing, zero_and_bucket_sizes_change_no_bit_of_muon) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp64})
    expect_equal(Sharing(), dtype, 1, layers::kMuon);
}

}  // namespace
}  // namespace stowage::ctest
