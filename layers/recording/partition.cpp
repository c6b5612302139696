#include "layers/recording/partition.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "layers/recording/roundings.hpp"

namespace stowage::layers {

namespace {

/// "1, 2, 4, 8": into how many equal parts so many things can be divided.
std::string divisors(std::int64_t extent) {
  constexpr int kMost = 12;
  std::string text;
  int count = 0;
  for (std::int64_t i = 1; i <= extent && count <= kMost; ++i)
    if (extent % i == 0 && ++count <= kMost) text += fmt::format("{}{}", count > 1 ? ", " : "", i);
  return count > kMost ? text + ", ..." : text;
}

/// Says which keys of the deck ask for what cannot be, and what they may ask for.
[[noreturn]] void refuse(const Partition& partition, std::int64_t extent, const char* key,
                         const char* also) {
  execution::throw_usage("{} = {} cannot be shared by {} = {} ranks; allowed: {}{}", key, extent,
                         partition.group == "experts" ? "parallel.tensor * parallel.expert"
                                                      : "parallel." + partition.group,
                         partition.parts, divisors(extent), also);
}

}  // namespace

std::int64_t Partition::share(std::int64_t extent, const char* key) const {
  if (extent % parts != 0) refuse(*this, extent, key, "");
  return extent / parts;
}

int Partition::share(int extent, const char* key) const {
  return static_cast<int>(share(std::int64_t{extent}, key));
}

int Partition::copies(std::int64_t extent, const char* key) const {
  if (extent % parts != 0 && (extent <= 0 || parts % extent != 0))
    refuse(*this, extent, key, " or a multiple of it");
  return extent < parts ? static_cast<int>(parts / extent) : 1;
}

int Partition::share_or_copy(int extent, const char* key) const {
  return extent * copies(extent, key) / parts;
}

std::vector<Cut> Partition::cut(int dimension, const std::vector<Block>& blocks) const {
  if (parts == 1) return {};
  Cut cut{dimension, {}};
  std::int64_t begin = 0;
  for (const auto& [extent, copies] : blocks) {
    const std::int64_t share = extent * copies / parts;
    const std::int64_t first = begin + index / copies * share;
    cut.ranges.push_back({first, first + share});
    begin += extent;
  }
  return {cut};
}

/// Rows of the ranks at some distances go in few exchanges, of which each takes some time to start.
std::vector<SharedRows::Step> SharedRows::gather_steps(std::int64_t rows) const {
  constexpr int kMostSteps = 3;
  const int others = size() - 1, steps = std::min(others, kMostSteps);
  std::vector<Step> found(static_cast<std::size_t>(steps), Step{{}, {0, rows}});
  for (int distance = 1; distance <= others; ++distance)
    found[static_cast<std::size_t>((distance - 1) * steps / others)].distances.push_back(distance);
  return found;
}

/// The last one lies beside the product of a rank's own rows. With two ranks the only other one's
/// rows go in halves, so that the first lies beside the second's.
std::vector<SharedRows::Step> SharedRows::send_partials_steps(std::int64_t rows) const {
  if (size() != 2 || rows % 2 != 0) return gather_steps(rows);
  return {{{1}, {0, rows / 2}}, {{1}, {rows / 2, rows}}};
}

std::vector<execution::Range> SharedRows::rows_of(const Step& step, std::int64_t rows,
                                                  bool behind) const {
  std::vector<std::int64_t> ranks;
  for (const int distance : step.distances)
    ranks.push_back((rank() + (behind ? distance : size() - distance)) % size());
  std::ranges::sort(ranks);
  std::vector<execution::Range> found;
  for (const std::int64_t rank : ranks) {
    const execution::Range some{rank * rows + step.some.begin, rank * rows + step.some.end};
    if (!found.empty() && found.back().end == some.begin)
      found.back().end = some.end;
    else
      found.push_back(some);
  }
  return found;
}

AllRows SharedRows::gather_others(Recorder& recorder, const std::string& name, Tensor mine) const {
  if (size() == 1) return {mine, mine};
  const std::int64_t rows = recorder.buffer(mine).shape.front();
  AllRows gathered{mine, made_for_all(recorder, name, mine), {}};
  const auto add = [&](execution::Range of, bool own) {
    gathered.blocks.push_back({of, own, fmt::format("/{}", gathered.blocks.size())});
  };
  add({rank() * rows, (rank() + 1) * rows}, true);
  const std::vector<Step> steps = gather_steps(rows);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    recorder.append(group_->gather_ring(recorder.program(),
                                        recorder.full_name(fmt::format("gather_{}/{}", name, i)),
                                        {mine, {}}, {gathered.all, {}}, steps[i].distances));
    for (const execution::Range& of : rows_of(steps[i], rows, false)) add(of, false);
  }
  return gathered;
}

AllRows SharedRows::gather_each(Recorder& recorder, const std::string& name, Tensor mine) const {
  AllRows gathered = gather_others(recorder, name, mine);
  if (size() == 1) return gathered;
  const execution::BufferInfo& buffer = recorder.buffer(mine);
  const std::int64_t first = rank() * buffer.elements();
  recorder.copy("own_" + name, read(mine),
                {gathered.all, Access::write, {first, first + buffer.elements()}},
                {0, 2.0 * static_cast<double>(buffer.bytes())});
  return gathered;
}

Tensor SharedRows::gather(Recorder& recorder, const std::string& name, Tensor mine) const {
  if (size() == 1) return mine;
  const Tensor all = made_for_all(recorder, name, mine);
  gather_to(recorder, name, mine, all);
  return all;
}

void SharedRows::gather_to(Recorder& recorder, const std::string& name, Tensor mine,
                           Tensor all) const {
  recorder.append(group_->all_gather_from(recorder.program(), recorder.full_name("gather_" + name),
                                          {mine, {}}, {all, {}}));
}

Tensor SharedRows::made_for_all(Recorder& recorder, const std::string& name, Tensor mine) const {
  std::vector<std::int64_t> shape = recorder.buffer(mine).shape;
  shape.front() *= size();
  const Tensor all = recorder.scratch(name, recorder.buffer(mine).dtype, std::move(shape));
  if (is_payload(recorder, mine)) share_scale(recorder, mine, all);
  return all;
}

SharedRows::Summands SharedRows::start(Recorder& recorder, const std::string& name,
                                       Tensor summand) const {
  if (size() == 1) return {name, summand, {}};
  std::vector<std::int64_t> shape = recorder.buffer(summand).shape;
  STOWAGE_ASSERT(shape.front() % size() == 0, "{} rows of {} ranks", shape.front(), size());
  shape.front() -= shape.front() / size();
  return {name, summand,
          recorder.scratch(name + "_summands", recorder.buffer(summand).dtype, std::move(shape))};
}

void SharedRows::send_partials_step(Recorder& recorder, const Summands& summands, const Step& step,
                                    const std::string& suffix) const {
  const execution::BufferInfo& buffer = recorder.buffer(summands.all);
  const std::int64_t row = buffer.elements() / buffer.shape.front();
  recorder.append(group_->send_partials(recorder.program(),
                                        recorder.full_name("reduce_" + summands.name + suffix),
                                        {summands.all, {}}, {summands.others, {}}, step.distances,
                                        {step.some.begin * row, step.some.end * row}));
}

SharedRows::Summands SharedRows::send_partials(Recorder& recorder, const std::string& name,
                                               Tensor summand) const {
  const Summands summands = start(recorder, name, summand);
  if (size() == 1) return summands;
  Step all{{}, {0, recorder.buffer(summand).shape.front() / size()}};
  for (int distance = 1; distance < size(); ++distance) all.distances.push_back(distance);
  send_partials_step(recorder, summands, all, "");
  return summands;
}

Tensor SharedRows::sum(Recorder& recorder, const Summands& summands) const {
  if (size() == 1) return summands.all;
  std::vector<std::int64_t> shape = recorder.buffer(summands.all).shape;
  shape.front() /= size();
  const Tensor mine =
      recorder.scratch(summands.name, recorder.buffer(summands.all).dtype, std::move(shape));
  sum_to(recorder, summands, mine);
  return mine;
}

void SharedRows::sum_to(Recorder& recorder, const Summands& summands, Tensor mine) const {
  recorder.append(group_->reduce_partials(recorder.program(),
                                          recorder.full_name("sum_" + summands.name),
                                          {summands.all, {}}, {summands.others, {}}, {mine, {}}));
}

SharedRows::Summands SharedRows::send_partials_each(Recorder& recorder, const std::string& name,
                                                    Tensor summand, const MakeRows& make) const {
  const Summands summands = start(recorder, name, summand);
  if (size() == 1) {
    make(summand, {});
    return summands;
  }
  const std::int64_t rows = recorder.buffer(summand).shape.front() / size();
  int made = 0;
  const auto make_rows = [&](execution::Range of, bool own) {
    make({summand, of}, {of, own, fmt::format("/{}", made++)});
  };
  const std::vector<Step> steps = send_partials_steps(rows);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const execution::Range& of : rows_of(steps[i], rows, true)) make_rows(of, false);
    send_partials_step(recorder, summands, steps[i], fmt::format("/{}", i));
  }
  make_rows({rank() * rows, (rank() + 1) * rows}, true);
  return summands;
}

Tensor SharedRows::reduce_each(Recorder& recorder, const std::string& summand,
                               const std::string& name, std::int64_t width,
                               const MakeRows& make) const {
  const Tensor all = recorder.scratch(summand, {recorder.tokens(), width});
  return sum(recorder, send_partials_each(recorder, name, all, make));
}

}  // namespace stowage::layers
