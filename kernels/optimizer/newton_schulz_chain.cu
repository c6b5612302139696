// The list of products of Newton-Schulz iterations, which newton_schulz_sm90.cu works off.

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "kernels/hopper/tensor_map.hpp"
#include "kernels/optimizer/newton_schulz_chain.hpp"

namespace stowage::kernels::optimizer {
namespace {

using execution::Bf16;
using grouped::kDepth;

int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// Tensor maps of a launch, each of matrices in boxes of 64 columns and some rows.
class Maps {
 public:
  explicit Maps(Chain& chain) : chain_(chain) {}

  std::int16_t of(const Bf16* data, std::int64_t count, std::int64_t rows, std::int64_t columns,
                  int box_rows) {
    for (std::size_t i = 0; i < made_.size(); ++i)
      if (made_[i] == std::pair(data, box_rows)) return static_cast<std::int16_t>(i);
    const auto extent = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    const std::uint64_t extents[] = {extent(columns), extent(rows), extent(count)};
    const std::uint64_t strides[] = {extents[0] * 2, extents[0] * extents[1] * 2};
    const std::uint32_t box[] = {64, static_cast<std::uint32_t>(box_rows), 1};
    // Types of 16 bits are alike to a map.
    chain_.maps[made_.size()] = hopper::make_tensor_map(hopper::TensorMapType::bf16, data, extents,
                                                        strides, box, hopper::Swizzle::b128);
    made_.emplace_back(data, box_rows);
    return static_cast<std::int16_t>(made_.size() - 1);
  }

 private:
  Chain& chain_;
  std::vector<std::pair<const Bf16*, int>> made_;
};

/// The products of matrices of one shape, in levels: each reads what is made in those before.
class Iterations {
 public:
  Iterations(const TileMatrices& of, const NewtonSchulzOptions& options, Maps& maps)
      : of_(of), shape_(of.shape), done_(of.room.counters + launches(options)), maps_(maps) {
    Bf16 *from = of.start(), *to = from == of.x ? of.room.other : of.x;
    for (std::size_t part = 0; part < of.parts.size(); ++part) {
      add_part(from, to, of.parts[part], part + 1 == of.parts.size());
      std::swap(from, to);
    }
  }
  const std::vector<std::vector<Product>>& levels() const { return levels_; }

 private:
  void add_part(Bf16* from, Bf16* to, int iterations, bool last) {
    const NewtonSchulzRoom<Bf16>& room = of_.room;
    Bf16 *power = room.power, *spare = room.other_power;
    open_level();
    gram(from, room.gram);
    for (int i = 0; i < iterations; ++i) {
      Bf16* const polynomial = i == 0 ? power : room.polynomial;
      const bool goes_on = i + 1 < iterations;
      open_level();
      square(room.gram, room.gram, polynomial).finish = Finish::polynomial;
      if (goes_on || i > 0) open_level();
      if (goes_on) square(room.gram, polynomial, room.product);
      if (i > 0) {
        square(power, polynomial, spare);
        std::swap(power, spare);
      }
      if (!goes_on) continue;
      open_level();
      square(room.product, polynomial, room.gram);
    }
    open_level();
    apply(power, from, to, last);
  }
  void open_level() {
    levels_.emplace_back();
    before_ = appended_;
  }
  Product& add(const Product& p) {
    Product& added = levels_.back().emplace_back(p);
    added.after = before_;
    added.done = done_;
    appended_ += p.tiles;
    return added;
  }
  Product& symmetric(std::int64_t depth, Bf16* out) {
    Product p{};
    p.rows = p.columns = static_cast<int>(shape_.smaller());
    p.depth = static_cast<int>(depth);
    const int down = ceil_div(p.rows, kTileRows), across = ceil_div(p.columns, kWidth);
    for (int i = 0; i < down; ++i) p.tiles += lower_across(i, across);
    p.lower = true;
    p.finish = Finish::mirror;
    p.out = reinterpret_cast<std::uint16_t*>(out);
    return add(p);
  }
  /// out = X X^T, or X^T X.
  void gram(const Bf16* x, Bf16* out) {
    Product& p = symmetric(shape_.larger(), out);
    const bool along = shape_.rows > shape_.columns;
    p.along = along ? Along::both : Along::none;
    p.a = map_of_x(x, along ? kDepth : kTileRows);
    p.b = map_of_x(x, along ? kDepth : kWidth);
    p.narrow_b = map_of_x(x, along ? kDepth : kNarrow);
  }
  /// out = a b of two that commute. The polynomial is of a.
  Product& square(const Bf16* a, const Bf16* b, Bf16* out) {
    Product& p = symmetric(shape_.smaller(), out);
    p.a = map_of_square(a, kTileRows);
    p.b = map_of_square(b, kWidth);
    p.narrow_b = map_of_square(b, kNarrow);
    p.gram = reinterpret_cast<const std::uint16_t*>(a);
    return p;
  }
  /// out = power X, or X power.
  void apply(const Bf16* power, const Bf16* x, Bf16* out, bool last) {
    Product p{};
    p.rows = static_cast<int>(shape_.rows), p.columns = static_cast<int>(shape_.columns);
    p.depth = static_cast<int>(shape_.smaller());
    p.tiles = ceil_div(p.rows, kTileRows) * ceil_div(p.columns, kWidth);
    const bool along = shape_.rows <= shape_.columns;
    p.along = along ? Along::second : Along::none;
    p.a = along ? map_of_square(power, kTileRows) : map_of_x(x, kTileRows);
    p.b = along ? map_of_x(x, kDepth) : map_of_square(power, kWidth);
    p.narrow_b = along ? p.b : map_of_square(power, kNarrow);
    p.finish = last ? Finish::last : Finish::store;
    p.scale = static_cast<float>(shape_.scale / kFp16Norm);
    p.out = reinterpret_cast<std::uint16_t*>(out);
    add(p);
  }
  std::int16_t map_of_x(const Bf16* x, int box_rows) {
    return maps_.of(x, shape_.count, shape_.rows, shape_.columns, box_rows);
  }
  std::int16_t map_of_square(const Bf16* square, int box_rows) {
    return maps_.of(square, shape_.count, shape_.smaller(), shape_.smaller(), box_rows);
  }

  const TileMatrices& of_;
  const EqualMatrices& shape_;
  int* done_;
  Maps& maps_;
  std::vector<std::vector<Product>> levels_;
  int before_ = 0, appended_ = 0;  // tiles of a matrix
};

/// Matrices of kMostShapes shapes at most: level by level, so that those of one shape keep blocks
/// busy that would wait for another. In as many launches as products take.
int launch_some(const NewtonSchulzOptions& options, std::span<const TileMatrices> some, int blocks,
                cudaStream_t stream) {
  if (const int code = launch_normalise_fp16(options, some, stream); code != cudaSuccess)
    return code;
  Chain chain{};
  const auto [a, b, c] = options.coefficients;
  constexpr double kSquare = kFp16Norm * kFp16Norm;
  chain.a = static_cast<float>(a);
  chain.b = static_cast<float>(b / kSquare);
  chain.c = static_cast<float>(c / (kSquare * kSquare));
  chain.next = some.front().room.counters;
  Maps maps(chain);
  std::vector<Iterations> all;
  std::size_t levels = 0;
  for (const TileMatrices& of : some) {
    all.emplace_back(of, options, maps);
    levels = std::max(levels, all.back().levels().size());
  }
  int code = cudaSuccess;
  const auto launch = [&] {
    if (code == cudaSuccess) code = launch_chain(chain, blocks, stream);
    ++chain.next;
    chain.count = chain.tiles = 0;
  };
  for (std::size_t level = 0; level < levels; ++level)
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (level >= all[i].levels().size()) continue;
      for (Product p : all[i].levels()[level]) {
        if (chain.count == kMostProducts) launch();
        p.first = chain.tiles;
        chain.tiles += static_cast<int>(some[i].shape.count) * p.tiles;
        chain.products[chain.count++] = p;
      }
    }
  launch();
  return code;
}

}  // namespace

int launch_newton_schulz_sm90(const NewtonSchulzOptions& options, std::span<const TileMatrices> all,
                              int blocks, void* stream) {
  int code = cudaSuccess;
  for (std::size_t first = 0; first < all.size() && code == cudaSuccess; first += kMostShapes)
    code = launch_some(options,
                       all.subspan(first, std::min<std::size_t>(kMostShapes, all.size() - first)),
                       blocks, static_cast<cudaStream_t>(stream));
  return code;
}

}  // namespace stowage::kernels::optimizer
