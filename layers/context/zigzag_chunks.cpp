#include "layers/context/zigzag_chunks.hpp"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "execution/error.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace stowage::layers {
namespace {

const std::vector<std::int64_t>& shape_of(Recorder& recorder, Tensor tensor) {
  return recorder.program().info(tensor).buffers.front().shape;
}

std::string what(const std::string& name, int chunk) {
  return fmt::format("stretch {} of {}", chunk, name);
}

}  // namespace

std::array<std::int64_t, 2> ZigzagChunks::first_tokens(const Recorder& recorder) const {
  if (recorder.tokens() % 2 != 0)
    execution::throw_usage(
        "parallel.context_tokens = \"zigzag\": each of parallel.context = {} ranks has {} tokens "
        "of a microbatch, it needs an even number",
        group_->size(), recorder.tokens());
  const std::int64_t length = recorder.tokens() / 2;
  const std::array<int, 2> mine = worked_on(group_->rank());
  return {mine[0] * length, mine[1] * length};
}

ZigzagChunks::Pair ZigzagChunks::to_chunks(Recorder& recorder, const std::string& name,
                                           Tensor rows) const {
  const int rank = group_->rank();
  const std::int64_t width = shape_of(recorder, rows)[1], length = recorder.tokens() / 2;
  const execution::Range halves[] = {{0, length * width}, {length * width, 2 * length * width}};
  const Pair result = {recorder.scratch(name + "_early", {length, width}),
                       recorder.scratch(name + "_late", {length, width})};
  std::vector<parallel::Message> messages;
  for (int i = 0; i < 2; ++i) {
    const int chunk = owned(rank)[i];
    if (worker(chunk) != rank) {
      messages.push_back({worker(chunk), true, {rows, halves[i]}, what(name, chunk)});
      continue;
    }
    const Tensor to = result[chunk == rank ? 0 : 1];
    recorder.copy(name + "_stays", {rows, Access::read, halves[i]}, write(to),
                  kernels::PackColumns{length, width, recorder.storage()}.cost());
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const int chunk = worked_on(rank)[i];
    if (chunk / 2 != rank)
      messages.push_back({chunk / 2, false, {result[i], {}}, what(name, chunk)});
  }
  recorder.append(
      group_->exchange(recorder.program(), recorder.full_name("exchange_" + name), messages));
  return result;
}

void ZigzagChunks::to_rows(Recorder& recorder, const std::string& name, const Pair& chunks,
                           Tensor y) const {
  const int rank = group_->rank();
  const std::vector<std::int64_t> shape = shape_of(recorder, chunks[0]);
  std::vector<parallel::Message> messages;
  for (std::size_t i = 0; i < 2; ++i) {
    const int chunk = worked_on(rank)[i];
    if (chunk / 2 != rank)
      messages.push_back({chunk / 2, true, {chunks[i], {}}, what(name, chunk)});
  }
  Pair halves;
  for (std::size_t i = 0; i < 2; ++i) {
    const int chunk = owned(rank)[i];
    if (worker(chunk) == rank) {
      halves[i] = chunks[chunk == rank ? 0 : 1];
      continue;
    }
    halves[i] = recorder.scratch(fmt::format("{}_half_{}", name, i), shape);
    messages.push_back({worker(chunk), false, {halves[i], {}}, what(name, chunk)});
  }
  recorder.append(
      group_->exchange(recorder.program(), recorder.full_name("exchange_" + name), messages));
  execution::Op join;
  join.cost = kernels::PackColumns{2 * shape[0], shape[1], recorder.storage()}.cost();
  const execution::UseIndex first = join.add_use(read(halves[0]));
  const execution::UseIndex second = join.add_use(read(halves[1])), both = join.add_use(write(y));
  join.launch = [=](execution::Queue& q, execution::Views v) {
    const std::size_t bytes = first.in(v).buffer().bytes();
    q.copy(both.in(v).as<void>(), first.in(v).as<void>(), bytes);
    q.copy(both.in(v).as<std::byte>() + bytes, second.in(v).as<void>(), bytes);
  };
  recorder.compute(name + "_join", std::move(join));
}

}  // namespace stowage::layers
