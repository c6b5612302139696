#include "drivers/common/planned_rank.hpp"

#include <algorithm>

#include "drivers/common/data.hpp"
#include "drivers/common/options.hpp"
#include "execution/error.hpp"
#include "inputs/deck/check.hpp"
#include "parallel/collectives.hpp"

namespace stowage::drivers {
namespace {

/// A group of ranks that is only planned for.
class AbsentRanks final : public parallel::Collectives {
 public:
  explicit AbsentRanks(int size) : size_(size) {}

  const std::string& group() const override { return group_; }
  int rank() const override { return 0; }
  int size() const override { return size_; }
  int announce(const std::string&) override { return announced_++; }
  void all_reduce(execution::Queue&, int, void*, std::int64_t, execution::Dtype,
                  parallel::Reduction) override {
    throw execution::Error(execution::Exit::runtime, "a planned collective was launched");
  }

 private:
  std::string group_ = "data";
  int size_;
  int announced_ = 0;
};

layers::AllReduce planned_all_reduce(int ranks) {
  if (ranks == 1) return {};
  return [collectives = std::make_shared<AbsentRanks>(ranks)](
             const layers::Program& program, std::string name,
             std::span<const execution::Tensor> tensors, layers::Reduction how) {
    const auto reduction =
        how == layers::Reduction::sum ? parallel::Reduction::sum : parallel::Reduction::min;
    return parallel::all_reduce_op(program, std::move(name), tensors, reduction, collectives);
  };
}

}  // namespace

layers::TrainerOptions rank_options(const inputs::Deck& deck, std::int64_t least_ranks) {
  const std::int64_t ranks = std::max(least_ranks, deck.get<std::int64_t>("parallel.data"));
  layers::TrainerOptions options =
      trainer_options(deck, inputs::check_ranks(deck, ranks), static_cast<int>(ranks));
  const auto graphed = deck.get<std::vector<std::int64_t>>("graphs.max_packed_seqs");
  std::int64_t documents = std::max(deck.get<std::int64_t>("data.max_documents"),
                                    deck.get<std::int64_t>("train.micro_batch_size"));
  for (const std::int64_t capacity : graphed) documents = std::max(documents, capacity);
  options.capacities = capacities(deck, documents);
  options.evaluation_microbatches = 0;
  options.all_reduce = planned_all_reduce(static_cast<int>(ranks));
  return options;
}

}  // namespace stowage::drivers
