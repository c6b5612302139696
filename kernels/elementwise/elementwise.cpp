#include "kernels/elementwise/elementwise.hpp"

#include <cstdint>
#include <type_traits>

#include "execution/fp8.hpp"
#include "kernels/cost.hpp"
#include "kernels/elementwise/functors.hpp"

namespace stowage::kernels {

using execution::Bf16;
using execution::Cost;
using execution::Dtype;
using execution::parallel_for;
using execution::Queue;
using execution::View;

namespace {

// Runs a functor over the pieces of `count` elements.
template <class Functor>
void for_pieces(Queue& queue, const Functor& functor) {
  parallel_for(queue, detail::pieces(functor.count, Functor::kElements), functor);
}

template <class... Pointers>
bool aligned(Pointers... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

// Whether all of these are whole pieces of T.
template <class T, class... Counts>
bool in_pieces(std::int64_t count, Counts... counts) {
  return ((count % detail::kPiece<T> == 0) && ... && (counts % detail::kPiece<T> == 0));
}
template <class S>
bool in_pieces(const detail::ColumnShares& of) {
  return in_pieces<S>(of.shares[0], of.shares[1], of.shares[2]);
}

template <class From, class To>
void copy_rows(Queue& queue, const Matrix<const From>& from, const Matrix<To>& to) {
  const bool whole = aligned(from.data, to.data) && in_pieces<To>(to.columns, to.stride) &&
                     in_pieces<From>(from.stride);
  for_pieces(queue, detail::CopyRows<From, To>{from.data, to.data, to.columns, from.stride,
                                               to.stride, to.rows * to.columns, whole});
}

template <class T>
Matrix<T> matrix(const Columns& of) {
  return {of.view.as<T>() + of.first, of.rows(), of.count, of.width()};
}

// What both directions of split_columns work on.
template <class Op>
detail::ColumnShares column_shares(const Op& op) {
  detail::ColumnShares of{op.rows, op.blocks.width(), op.blocks.part_width(op.count), {}, {}, {}};
  for (int b = 0; b < 3; ++b) {
    of.copies[b] = op.blocks.copies[b];
    of.widths[b] = op.blocks.widths[b];
    of.shares[b] = op.blocks.share(b, op.count);
  }
  return of;
}

}  // namespace

std::string ColumnBlocks::fault(std::int64_t parts) const {
  for (int b = 0; b < 3; ++b)
    if (copies[b] <= 0 || parts % copies[b] != 0 || widths[b] % (parts / copies[b]) != 0)
      return "a block does not divide among the parts";
  return {};
}

void Add::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_storage_type(each_one.dtype, [&]<class S>() {
    const auto *x = views.a.as<const S>(), *y = views.b.as<const S>();
    auto* sum = views.out.as<S>();
    for_pieces(queue, detail::Add<S>{x, y, sum, each_one.elements(), aligned(x, y, sum)});
  });
}

Cost Add::cost() const {
  return {static_cast<double>(each_one.elements()), 3 * bytes(each_one.elements(), each_one.dtype)};
}

void Scale::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_storage_type(each_one.dtype, [&]<class S>() {
    for_pieces(queue, detail::Scale<S>{views.x.as<const S>(), views.y.as<S>(),
                                       static_cast<execution::Accumulation<S>>(factor),
                                       each_one.elements()});
  });
}

Cost Scale::cost() const {
  return {static_cast<double>(each_one.elements()), 2 * bytes(each_one.elements(), each_one.dtype)};
}

void fill(Queue& queue, const View& x, double value) {
  Operands("fill").require(static_cast<bool>(x), "x is absent");
  const auto launch = [&]<class T>(T rounded) {
    for_pieces(queue,
               detail::Fill<T>{x.as<T>(), rounded, x.buffer().elements(), aligned(x.as<T>())});
  };
  switch (x.dtype()) {
    case Dtype::fp64:
      return launch(value);
    case Dtype::fp32:
      return launch(static_cast<float>(value));
    case Dtype::bf16:
      return launch(static_cast<Bf16>(value));
    case Dtype::int32:
      return launch(static_cast<std::int32_t>(value));
    case Dtype::int64:
      return launch(static_cast<std::int64_t>(value));
    case Dtype::uint8:
      return launch(static_cast<std::uint8_t>(value));
    case Dtype::e4m3:
    case Dtype::e5m2:
      return execution::with_fp8_type(x.dtype(), [&]<class S>() { launch(S(value).bits); });
  }
}

void fill_normal(Queue& queue, const View& x, std::uint64_t seed, std::uint64_t stream, float scale,
                 const execution::GlobalIndex& index) {
  execution::with_storage_type(Operands("fill_normal").storage(x, "x"), [&]<class S>() {
    for_pieces(queue,
               detail::FillNormal<S>{x.as<S>(), seed, stream, scale, index, x.buffer().elements()});
  });
}

std::string Cast::fault() const {
  return (from.dtype == Dtype::fp64) == (to == Dtype::fp64) ? "" : "fp64 is cast to fp64 only";
}

void Cast::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  const auto launch = [&]<class From, class To>(const From* source, To* target) {
    for_pieces(queue,
               detail::Cast<From, To>{source, target, from.elements(), aligned(source, target)});
  };
  execution::with_storage_type(from.dtype, [&]<class From>() {
    execution::with_storage_type(to, [&]<class To>() {
      if constexpr (std::is_same_v<From, double> == std::is_same_v<To, double>)
        launch(views.x.as<const From>(), views.y.as<To>());
    });
  });
}

Cost Cast::cost() const {
  return {0, bytes(from.elements(), from.dtype) + bytes(from.elements(), to)};
}

void PackColumns::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_storage_type(storage, [&]<class S>() {
    copy_rows(queue, matrix<const S>(views.columns), matrix<S>(all_columns(views.packed)));
  });
}

Cost PackColumns::cost() const { return {0, 2 * bytes(rows * count, storage)}; }

std::string UnpackColumns::fault() const {
  const bool rounds = from == execution::accumulation(storage);
  return from == storage || rounds ? ""
                                   : "last is neither of the dtype of x nor of that of its sums";
}

void UnpackColumns::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_storage_type(storage, [&]<class S>() {
    const auto copy = [&]<class From>(const View& packed, std::int64_t first) {
      const auto source = matrix<const From>(all_columns(packed));
      copy_rows(queue, source, matrix<S>(Columns{views.x, first, source.columns}));
    };
    from == storage
        ? copy.template operator()<S>(views.last, width - count)
        : copy.template operator()<execution::Accumulation<S>>(views.last, width - count);
    if (all) copy.template operator()<S>(views.before, 0);
  });
}

Cost UnpackColumns::cost() const {
  return {0, bytes(rows * count, from) + bytes(rows * count, storage) +
                 (all ? 2 * bytes(rows * (width - count), storage) : 0)};
}

void SplitColumns::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  const detail::ColumnShares of = column_shares(*this);
  execution::with_storage_type(storage, [&]<class S>() {
    const auto* from = views.x.as<const S>();
    auto* to = views.parts.as<S>();
    for_pieces(queue, detail::SplitColumns<S>{from, to, of, views.parts.buffer().elements(),
                                              aligned(from, to) && in_pieces<S>(of)});
  });
}

Cost SplitColumns::cost() const {
  return {0, bytes(rows * (blocks.width() + count * blocks.part_width(count)), storage)};
}

void JoinColumns::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  const detail::ColumnShares of = column_shares(*this);
  execution::with_storage_type(storage, [&]<class S>() {
    const auto* from = views.parts.as<const S>();
    auto* to = views.x.as<S>();
    for_pieces(queue, detail::JoinColumns<S>{from, to, of, views.x.buffer().elements(),
                                             aligned(from, to) && in_pieces<S>(of)});
  });
}

Cost fill_cost(std::int64_t count, Dtype dtype) { return {0, bytes(count, dtype)}; }

}  // namespace stowage::kernels
