#include "layers/recording/partition.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"

namespace stowage::layers {
namespace {

std::vector<std::int64_t> shape_of(Recorder& recorder, Tensor tensor) {
  return recorder.program().info(tensor).buffers.front().shape;
}

execution::Dtype dtype_of(Recorder& recorder, Tensor tensor) {
  return recorder.program().info(tensor).buffers.front().dtype;
}

/// The elements of some rows of a tensor.
parallel::Piece rows_of(Recorder& recorder, Tensor tensor, execution::Range rows) {
  if (rows == execution::Range{}) return {tensor, {}};
  const execution::BufferInfo& buffer = recorder.program().info(tensor).buffers.front();
  const std::int64_t row = buffer.elements() / buffer.shape.front();
  return {tensor, {rows.begin * row, rows.end * row}};
}

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

std::vector<RowPiece> SharedRows::pieces(std::int64_t rows) const {
  if (pieces_ == 1) return {{}};
  STOWAGE_ASSERT(rows % (size() * pieces_) == 0, "{} rows in {} pieces of {} ranks", rows, pieces_,
                 size());
  const std::int64_t all = rows / pieces_, own = all / size();
  std::vector<RowPiece> found;
  for (int i = 0; i < pieces_; ++i)
    found.push_back({{i * all, (i + 1) * all}, {i * own, (i + 1) * own}, fmt::format("/{}", i)});
  return found;
}

Tensor SharedRows::gather(Recorder& recorder, const std::string& name, Tensor mine) const {
  if (size() == 1) return mine;
  const Tensor all = made_for_all(recorder, name, mine);
  gather_to(recorder, name, mine, all);
  return all;
}

Tensor SharedRows::gather_early(Recorder& recorder, const std::string& name, Tensor mine) const {
  if (size() == 1) return mine;
  const Tensor all = made_for_all(recorder, name, mine);
  for (const RowPiece& piece : pieces(recorder.tokens()))
    recorder.append_early(gather_piece(recorder, name, mine, all, piece));
  return all;
}

void SharedRows::gather_to(Recorder& recorder, const std::string& name, Tensor mine,
                           Tensor all) const {
  for (const RowPiece& piece : pieces(shape_of(recorder, all).front()))
    recorder.append(gather_piece(recorder, name, mine, all, piece));
}

execution::Op SharedRows::gather_piece(Recorder& recorder, const std::string& name, Tensor mine,
                                       Tensor all, const RowPiece& piece) const {
  return group_->all_gather_from(
      recorder.program(), recorder.full_name("gather_" + name + piece.suffix),
      rows_of(recorder, mine, piece.mine), rows_of(recorder, all, piece.all));
}

Tensor SharedRows::made_for_all(Recorder& recorder, const std::string& name, Tensor mine) const {
  std::vector<std::int64_t> shape = shape_of(recorder, mine);
  shape.front() *= size();
  return recorder.scratch(name, dtype_of(recorder, mine), std::move(shape));
}

SharedRows::Summands SharedRows::start(Recorder& recorder, const std::string& name,
                                       Tensor summand) const {
  if (size() == 1) return {name, summand, {}};
  std::vector<std::int64_t> shape = shape_of(recorder, summand);
  shape.front() -= shape.front() / size();
  return {name, summand,
          recorder.scratch(name + "_summands", dtype_of(recorder, summand), std::move(shape))};
}

SharedRows::Summands SharedRows::hand_out(Recorder& recorder, const std::string& name,
                                          Tensor summand) const {
  const Summands summands = start(recorder, name, summand);
  if (size() > 1)
    for (const RowPiece& piece : pieces(shape_of(recorder, summand).front()))
      hand_out_piece(recorder, summands, piece);
  return summands;
}

execution::Range SharedRows::from_others(const RowPiece& piece) const {
  if (piece.all == execution::Range{}) return {};
  return {piece.all.begin - piece.mine.begin, piece.all.end - piece.mine.end};
}

void SharedRows::hand_out_piece(Recorder& recorder, const Summands& summands,
                                const RowPiece& piece) const {
  recorder.append(group_->hand_out(recorder.program(),
                                   recorder.full_name("reduce_" + summands.name + piece.suffix),
                                   rows_of(recorder, summands.all, piece.all),
                                   rows_of(recorder, summands.others, from_others(piece))));
}

Tensor SharedRows::sum(Recorder& recorder, const Summands& summands) const {
  if (size() == 1) return summands.all;
  std::vector<std::int64_t> shape = shape_of(recorder, summands.all);
  shape.front() /= size();
  const Tensor mine =
      recorder.scratch(summands.name, dtype_of(recorder, summands.all), std::move(shape));
  sum_to(recorder, summands, mine);
  return mine;
}

void SharedRows::sum_to(Recorder& recorder, const Summands& summands, Tensor mine) const {
  for (const RowPiece& piece : pieces(shape_of(recorder, summands.all).front()))
    recorder.append_early(group_->sum_up(recorder.program(),
                                         recorder.full_name("sum_" + summands.name + piece.suffix),
                                         rows_of(recorder, summands.all, piece.all),
                                         rows_of(recorder, summands.others, from_others(piece)),
                                         rows_of(recorder, mine, piece.mine)));
}

Tensor SharedRows::reduce_each(Recorder& recorder, const std::string& summand,
                               const std::string& name, std::int64_t width,
                               const MakeRows& make) const {
  const Tensor all = recorder.scratch(summand, {recorder.tokens(), width});
  if (size() == 1) {
    make(all, {}, "");
    return all;
  }
  const Summands summands = start(recorder, name, all);
  for (const RowPiece& piece : pieces(recorder.tokens())) {
    make(all, piece.all, piece.suffix);
    hand_out_piece(recorder, summands, piece);
  }
  return sum(recorder, summands);
}

}  // namespace stowage::layers
