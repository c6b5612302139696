#include "run/state/state_digest.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>

#include "execution/philox.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace stowage::run {
namespace {

using execution::Dtype;
using execution::GlobalIndex;
using execution::Lifetime;
using execution::MemoryKind;
using execution::Range;

/// Two sums of 64 bits.
constexpr std::size_t kSumsBytes = 2 * sizeof(std::uint64_t);

/// By parameter: which elements of its whole each of its tensors is. Those that other ranks have
/// too are ranges of their own: ranks that have them call them alike.
std::map<std::string, std::vector<layers::ShardRange>> shard_ranges(const layers::Model& model) {
  std::map<std::string, std::vector<layers::ShardRange>> all;
  for (const layers::Parameter& parameter : model.parameters())
    all[parameter.name] = parameter.shard_ranges();
  return all;
}

/// Elements that this rank answers for: those that are up to date after a step.
Range up_to_date(const forecast::TrainerPlan& plan, const execution::Bucket& bucket,
                 const std::string& name) {
  if (bucket.shards.parts == 1) return plan.layout().held(name);
  return plan.layout().held(name, plan.options().sharing.holders(bucket.group).rank());
}

/// The same text for the same elements.
std::string elements_text(const GlobalIndex& index, std::int64_t count) {
  std::string text = fmt::format("{}+{}", index.first, count);
  for (int d = 0; d < index.dimensions; ++d) {
    const GlobalIndex::Dimension& at = index.dimension[d];
    text += fmt::format(" {}/{}", at.local, at.global);
    for (int r = 0; r < at.ranges; ++r) text += fmt::format(":{}+{}", at.begin[r], at.length[r]);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::uint64_t hexadecimal(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

/// Adds up what the ranks hold, each part once.
StateDigest::Value merge(const std::vector<std::string>& by_rank) {
  struct First {
    std::string_view sums;
    std::size_t rank;
  };
  std::map<std::pair<std::string_view, std::string_view>, First> parts;  // by tensor and elements
  StateDigest::Value value;
  std::uint64_t total[2] = {0, 0};
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    for (const std::string_view line : split(by_rank[rank], '\n')) {
      const std::vector<std::string_view> fields = split(line, '\t');
      const auto [at, is_new] = parts.try_emplace({fields[0], fields[1]}, First{fields[2], rank});
      if (!is_new) {
        if (at->second.sums != fields[2])
          value.differing.push_back(
              fmt::format("{} on ranks {} and {}", fields[0], at->second.rank, rank));
        continue;
      }
      total[1] += hexadecimal(fields[2].substr(0, 16));
      total[0] += hexadecimal(fields[2].substr(16));
    }
  value.text = kernels::digest_text(total);
  return value;
}

}  // namespace

StateDigest::StateDigest(execution::Device& device, const forecast::TrainerPlan& plan,
                         const parallel::Communicator& world)
    : device_(device), world_(world) {
  const std::map<std::string, std::vector<layers::ShardRange>> cut = shard_ranges(plan.model());
  for (const execution::Bucket& bucket : plan.layout().buckets())
    for (const std::string& name : bucket.tensors) {
      if (plan.layout().whole(name).lifetime == Lifetime::gradient) continue;
      const Range range = up_to_date(plan, bucket, name);
      const auto found = cut.find(layers::parameter_of(name));
      if (found == cut.end())
        hold(bucket, name, {{0, range.end}, {}}, range);
      else
        for (const layers::ShardRange& shard : found->second) hold(bucket, name, shard, range);
    }
  const std::size_t bytes = std::max<std::size_t>(held_.size(), 1) * kSumsBytes;
  sums_ = device.backend().allocate(MemoryKind::device, bytes);
  on_host_ = device.backend().allocate(MemoryKind::host, bytes);
}

void StateDigest::hold(const execution::Bucket& bucket, const std::string& name,
                       const layers::ShardRange& shard, Range range) {
  const std::int64_t first = shard.elements.begin;
  range = {std::max(range.begin, first), std::min(range.end, shard.elements.end)};
  if (range.begin >= range.end) return;
  const execution::PersistentLayout& layout = device_.layout();
  const std::size_t before = static_cast<std::size_t>(range.begin - layout.held(name).begin) *
                             execution::size_bytes(bucket.dtype);
  Held held{execution::one_buffer(name, bucket.dtype, {range.end - range.begin},
                                  layout.whole(name).lifetime),
            {execution::stream_of(name), shard.index},
            device_.address(layout.place(name)) + before};
  held.part.index.first = range.begin - first;
  held_.push_back(std::move(held));
}

std::string StateDigest::sums_text() {
  execution::Queue& queue = device_.queue({"compute", execution::Lane::compute});
  const auto count = static_cast<std::int64_t>(held_.size());
  const execution::TensorInfo all =
      execution::one_buffer("sums", Dtype::int64, {count, 2}, Lifetime::scratch);
  const execution::TensorInfo one =
      execution::one_buffer("sums", Dtype::int64, {2}, Lifetime::scratch);
  void* at = sums_->data();
  kernels::fill(queue, {{&at, 1}, &all}, 0);
  for (std::size_t i = 0; i < held_.size(); ++i) {
    at = sums_->data() + i * kSumsBytes;
    kernels::add_digest(queue, held_[i].part, {{&held_[i].data, 1}, &held_[i].info},
                        {{&at, 1}, &one});
  }
  queue.copy(on_host_->data(), sums_->data(), held_.size() * kSumsBytes);
  queue.synchronize();
  std::string text;
  for (std::size_t i = 0; i < held_.size(); ++i) {
    std::uint64_t sums[2];
    std::memcpy(sums, on_host_->data() + i * kSumsBytes, kSumsBytes);
    text +=
        fmt::format("{}\t{}\t{}\n", held_[i].info.name,
                    elements_text(held_[i].part.index, held_[i].info.buffers.front().elements()),
                    kernels::digest_text(sums));
  }
  return text;
}

StateDigest::Value StateDigest::make() {
  device_.synchronize();
  const std::vector<std::string> by_rank = world_.gather(sums_text());
  const Value mine = world_.rank() == 0 ? merge(by_rank) : Value{};
  const std::string all =
      world_.broadcast(fmt::format("{}\n{}", mine.text, fmt::join(mine.differing, "\n")));
  const std::vector<std::string_view> lines = split(all, '\n');
  return {std::string(lines.front()), {lines.begin() + 1, lines.end()}};
}

}  // namespace stowage::run
