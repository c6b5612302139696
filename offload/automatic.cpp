#include "offload/automatic.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "execution/error.hpp"
#include "offload/host_room.hpp"
#include "offload/lifetimes.hpp"
#include "offload/manual.hpp"
#include "offload/overlap.hpp"

namespace stowage::offload {

using execution::Decision;

namespace {

/// Lengths of the list of tensors to recompute that are tried, besides those where a cost changes.
constexpr std::size_t kLengths = 24;
/// How often all tensors are gone through to exchange decisions.
constexpr int kPasses = 2;
/// Part of the step's time that an exchange must save.
constexpr double kGain = 1e-4;
/// Most numbers of reruns that are tried to leave few bytes.
constexpr std::size_t kLeast = 64;
/// How often a few decisions drawn at random are changed at once, and how many at most.
constexpr int kMixes = 1500;
constexpr std::size_t kMostMixed = 3;

class Search {
 public:
  Search(const Drafts& drafts, Choice start, std::size_t limit)
      : drafts_(drafts),
        start_(std::move(start)),
        limit_(limit),
        is_rerun_(drafts.program().tensors().size()) {
    for (const SavedTensor& item : drafts.saved_tensors()) {
      const int id = item.tensor.id;
      if (can_move(item))
        by_forward_.push_back(item.tensor.id);
      else if (start_.decisions[id] == Decision::keep)
        start_.reasons[id] =
            drafts.gradient_memory_reuse().has(item.tensor) ? Reason::not_needed : Reason::small;
    }
    order_reruns();
  }

  /// The decisions of least time that fit; nothing if none do.
  std::optional<Choice> run() {
    std::optional<Timed> best;
    for (const std::size_t length : lengths()) {
      std::optional<Timed> found = fewest_offloads(length);
      if (found && (!best || found->time_s < best->time_s)) best = std::move(found);
    }
    if (!best) return std::nullopt;
    exchange(*best);
    mix(*best);
    return std::move(best->choice);
  }

  /// All that can leaves or is computed again: of the last tensors of forward more and more.
  std::vector<Choice> least() && {
    reruns_.assign(by_forward_.rbegin(), by_forward_.rend());
    std::erase_if(reruns_, [this](int tensor) { return !can_rerun(tensor); });
    const std::size_t parts = std::clamp<std::size_t>(reruns_.size(), 1, kLeast);
    std::vector<Choice> all;
    for (std::size_t i = 0; i <= parts; ++i)
      all.push_back(choose(reruns_.size() * i / parts, by_forward_.size()));
    return all;
  }

  /// The smallest peak that the policy knows how to reach, whatever the host's room.
  Draft smallest() const {
    Draft again = drafts_.make_within(choose(reruns_.size(), by_forward_.size()).decisions, 0);
    Draft moved = drafts_.make_within(choose(0, by_forward_.size()).decisions, 0);
    return again.peak < moved.peak ? std::move(again) : std::move(moved);
  }

 private:
  struct Timed {
    Choice choice;
    double time_s;
  };

  bool can_move(const SavedTensor& item) const {
    const int id = item.tensor.id;
    return start_.decisions[id] == Decision::keep &&
           !drafts_.gradient_memory_reuse().has(item.tensor) &&
           movable_bytes(drafts_.program().info(item.tensor), drafts_.policy().min_tensor_bytes) >
               0;
  }

  /// Sorts what can be recomputed by time for a byte, each judged as if all else were kept.
  void order_reruns() {
    struct Candidate {
      double s_per_byte;
      int written;
      int tensor;
    };
    std::vector<Candidate> candidates;
    for (const SavedTensor& item : drafts_.saved_tensors()) {
      if (!can_move(item)) continue;
      if (const auto s_per_byte = drafts_.rerun_s_per_byte(item, start_.decisions))
        candidates.push_back({*s_per_byte, item.written, item.tensor.id});
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                       if (a.s_per_byte != b.s_per_byte) return a.s_per_byte < b.s_per_byte;
                       return a.written > b.written;
                     });
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (i > 0 && candidates[i].s_per_byte > candidates[i - 1].s_per_byte) changes_.push_back(i);
      reruns_.push_back(candidates[i].tensor);
      is_rerun_[candidates[i].tensor] = 1;
    }
  }

  std::vector<std::size_t> lengths() const {
    std::vector<std::size_t> result = changes_;
    for (std::size_t i = 0; i <= kLengths; ++i) result.push_back(reruns_.size() * i / kLengths);
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }

  Choice choose(std::size_t reruns, std::size_t offloads) const {
    Choice choice = start_;
    const auto set = [&](int tensor, Decision decision) {
      choice.decisions[tensor] = decision;
      choice.reasons[tensor] = Reason::budget;
    };
    for (const int tensor : by_forward_) choice.reasons[tensor] = Reason::not_needed;
    for (std::size_t i = 0; i < reruns; ++i) set(reruns_[i], Decision::recompute);
    for (const int tensor : by_forward_) {
      if (offloads == 0) break;
      if (choice.decisions[tensor] == Decision::recompute) continue;
      set(tensor, Decision::offload);
      --offloads;
    }
    return choice;
  }

  bool fits_host(const Choice& choice) const {
    const Policy& policy = drafts_.policy();
    HostRoom room(drafts_.program().ops().size());
    for (const SavedTensor& item : drafts_.saved_tensors())
      if (choice.decisions[item.tensor.id] == Decision::offload)
        room.add(item, movable_bytes(drafts_.program().info(item.tensor), policy.min_tensor_bytes));
    return policy.has_host_room(room.most());
  }

  /// Changes the decision about one tensor after the other, the dearest to compute again first,
  /// wherever that saves time and still fits: the link may have room for what the list says to
  /// compute again, and what leaves may be better computed again.
  void exchange(Timed& best) const {
    std::vector<int> tensors(reruns_.rbegin(), reruns_.rend());
    for (const int tensor : by_forward_)
      if (!can_rerun(tensor)) tensors.push_back(tensor);
    bool better = true;
    for (int pass = 0; pass < kPasses && better; ++pass) {
      better = false;
      for (const int tensor : tensors)
        for (const Decision decision : {Decision::keep, Decision::offload, Decision::recompute})
          better = try_decision(best, tensor, decision) || better;
    }
  }

  bool try_decision(Timed& best, int tensor, Decision decision) const {
    if (best.choice.decisions[tensor] == decision) return false;
    Choice choice = best.choice;
    return set(choice, tensor, decision) && take(best, std::move(choice), kGain);
  }

  /// Exchanges cannot leave a choice that only several changes together make better: what is kept
  /// instead of another tensor, one that leaves in two smaller ones' time. The draws are the same
  /// everywhere.
  void mix(Timed& best) const {
    std::mt19937 draw(1);
    for (int i = 0; !by_forward_.empty() && i < kMixes; ++i) {
      Choice choice = best.choice;
      bool possible = true;
      for (std::size_t changes = 1 + draw() % kMostMixed; changes > 0; --changes) {
        const int tensor = by_forward_[draw() % by_forward_.size()];
        constexpr Decision kDecisions[] = {Decision::keep, Decision::offload, Decision::recompute};
        possible = set(choice, tensor, kDecisions[draw() % 3]) && possible;
      }
      if (possible) take(best, std::move(choice), 0);
    }
  }

  /// False if the tensor cannot be computed again.
  bool set(Choice& choice, int tensor, Decision decision) const {
    if (decision == Decision::recompute && !can_rerun(tensor)) return false;
    const auto id = static_cast<std::size_t>(tensor);
    choice.decisions[id] = decision;
    choice.reasons[id] = decision == Decision::keep ? Reason::not_needed : Reason::budget;
    return true;
  }

  /// Takes a choice if it fits and saves more than a part of the time.
  bool take(Timed& best, Choice choice, double gain) const {
    if (!fits_host(choice)) return false;
    const double most_s = best.time_s * (1 - gain);
    // Without a limit a draft takes less time and more bytes.
    if (drafts_.time_s(choice.decisions) >= most_s) return false;
    const Draft draft = drafts_.make_within(choice.decisions, limit_);
    if (draft.peak > limit_ || draft.time_s >= most_s) return false;
    best = {std::move(choice), draft.time_s};
    return true;
  }

  bool can_rerun(int tensor) const { return is_rerun_[tensor] != 0; }

  /// With `reruns` tensors recomputed, the fewest offloads that fit, and the time they take.
  std::optional<Timed> fewest_offloads(std::size_t reruns) const {
    const auto fits = [&](std::size_t offloads) {
      return drafts_.make_within(choose(reruns, offloads).decisions, limit_).peak <= limit_;
    };
    std::size_t low = 0;
    std::size_t high = by_forward_.size() - reruns;
    if (!fits(high)) return std::nullopt;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (fits(middle))
        high = middle;
      else
        low = middle + 1;
    }
    Choice choice = choose(reruns, high);
    if (!fits_host(choice)) return std::nullopt;
    const double time_s = drafts_.make_within(choice.decisions, limit_).time_s;
    return Timed{std::move(choice), time_s};
  }

  const Drafts& drafts_;
  Choice start_;
  std::size_t limit_;
  std::vector<int> by_forward_;       ///< tensors that may move, in forward order
  std::vector<int> reruns_;           ///< those that can be recomputed, cheapest byte first
  std::vector<char> is_rerun_;        ///< by tensor
  std::vector<std::size_t> changes_;  ///< where in reruns_ the cost of a byte changes
};

/// "3.0 GiB of saved mlp_act, …": the largest classes of what is live when most is.
std::string what_is_left(const execution::Program& program, const Draft& draft) {
  const auto fullest =
      static_cast<int>(std::max_element(draft.live.begin(), draft.live.end()) - draft.live.begin());
  std::map<std::string, std::size_t> bytes;
  for (const LiveRange& range : live_ranges(draft.plan)) {
    if (range.begin > fullest || range.end < fullest) continue;
    const execution::Place& place = draft.plan.places[range.place];
    if (place.region != execution::Region::transient) continue;
    const execution::TensorInfo& info = program.info(place.tensor);
    const std::string kind(name(info.lifetime));
    bytes[info.module.empty() ? kind : kind + " " + info.module] += place.bytes;
  }
  std::vector<std::pair<std::size_t, std::string>> sorted;
  for (const auto& [what, size] : bytes) sorted.emplace_back(size, what);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(sorted.size(), 4); ++i)
    text += fmt::format("{}{} B of {}", i == 0 ? "" : ", ", sorted[i].first, sorted[i].second);
  return text;
}

Choice choose_free(const Drafts& drafts, Choice choice) {
  const Policy& policy = drafts.policy();
  HostRoom room(drafts.program().ops().size());
  for (const SavedTensor& item : drafts.saved_tensors()) {
    const int id = item.tensor.id;
    const std::size_t bytes =
        movable_bytes(drafts.program().info(item.tensor), policy.min_tensor_bytes);
    if (choice.decisions[id] != Decision::keep) continue;
    room.add(item, bytes);
    const bool fits = policy.has_host_room(room.most());
    if (!fits) room.remove(item, bytes);
    choice.reasons[id] = bytes == 0 ? Reason::small : fits ? Reason::free : Reason::host_budget;
    if (bytes > 0 && fits) choice.decisions[id] = Decision::offload;
  }
  keep_exposed(drafts, choice);
  return choice;
}

/// What the deck lists.
Choice listed(const Drafts& drafts) {
  return choose_manual(drafts.program(), drafts.saved_tensors(), drafts.reruns(), drafts.policy());
}

}  // namespace

std::vector<Choice> least_choices(const Drafts& drafts) {
  return Search(drafts, listed(drafts), 0).least();
}

Choice choose_automatic(const Drafts& drafts, std::size_t budget) {
  Choice start = listed(drafts);
  if (budget == 0) return choose_free(drafts, std::move(start));
  Search search(drafts, std::move(start), budget);
  if (std::optional<Choice> found = search.run()) return *std::move(found);
  const Draft smallest = search.smallest();
  if (smallest.peak <= budget)
    execution::throw_usage(
        "offload.host_budget_bytes = {}: what must leave to fit offload.device_budget_bytes needs "
        "more room on the host; raise either",
        drafts.policy().host_budget_bytes);
  execution::throw_usage(
      "offload.device_budget_bytes = {}: with all that may be offloaded or computed again, the "
      "step still needs {} bytes beside what outlives it{}, {} are left for it ({} missing); the "
      "rest is {}",
      drafts.policy().device_budget_bytes, smallest.peak, with_state_copy(drafts.policy()), budget,
      smallest.peak > budget ? smallest.peak - budget : 0,
      what_is_left(drafts.program(), smallest));
}

}  // namespace stowage::offload
