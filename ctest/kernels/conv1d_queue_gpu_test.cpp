// The convolution's queue form on a GPU against its host reference in fp64, on inputs as rounded.

#include <cmath>
#include <limits>

#include "ctest/kernels/device_array.hpp"
#include "ctest/kernels/packed.hpp"
#include "ctest/kernels/support.hpp"
#include "kernels/conv1d/conv1d.hpp"

namespace stowage::kernels::test {
namespace {

struct Case {
  std::int64_t channels, before, after;  ///< columns of x, and of others around them
  Packed packed;
  std::int64_t taps = 4;

  std::int64_t width() const { return before + channels + after; }
};

/// x (n, width) with `values` in its channels and NaN around them.
Array wide(const Case& c, Dtype storage, const Values& values) {
  Values all(at(c.packed.tokens * c.width()), std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t i = 0; i < c.packed.tokens * c.channels; ++i)
    all[at(i / c.channels * c.width() + c.before + i % c.channels)] = values[at(i)];
  return {storage, {c.packed.tokens, c.width()}, all};
}

struct Problem {
  Problem(const Case& c, Dtype storage, Random& random)
      : n(c.packed.tokens),
        x(wide(c, storage, random.normal(n * c.channels))),
        w(storage, {c.channels, c.taps}, random.normal(c.channels * c.taps, 0.5)),
        b(storage, {c.channels}, random.normal(c.channels, 0.2)),
        dy(storage, {n, c.channels}, random.normal(n * c.channels)),
        seq_idx(c.packed.seq_idx()),
        y(storage, {n, c.channels}),
        dx(storage, {n, c.width()}),
        dw(execution::accumulation(storage), {c.channels, c.taps}),
        db(execution::accumulation(storage), {c.channels}),
        room(workspace(conv1d_silu_backward_workspace_bytes(n, c.channels, storage))) {}

  std::int64_t n;
  Array x, w, b, dy, seq_idx, y, dx, dw, db, room;
};

struct Results {
  Values y, dx, dw, db;
};

template <class At>
void enqueue(Queue& q, const Case& c, const Problem& p, const At& at, bool accumulate) {
  const Columns x = at(p.x).columns(c.before, c.channels);
  conv1d_silu_forward(q, x, at(p.w), at(p.b), at(p.seq_idx), at(p.y));
  conv1d_silu_backward(q,
                       {.dy = at(p.dy),
                        .x = x,
                        .w = at(p.w),
                        .b = at(p.b),
                        .seq_idx = at(p.seq_idx),
                        .dx = at(p.dx).columns(c.before, c.channels),
                        .dw = at(p.dw),
                        .db = at(p.db),
                        .workspace = at(p.room)},
                       accumulate);
}

Results reference(const Case& c, const Problem& p) {
  Random unused;
  Problem r(c, Dtype::fp64, unused);
  r.x.set(p.x.values());
  r.w.set(p.w.values());
  r.b.set(p.b.values());
  r.dy.set(p.dy.values());
  on_queue([&](Queue& q) {
    enqueue(
        q, c, r, [](const Array& a) -> const Array& { return a; }, false);
  });
  return {r.y.values(), columns_of(r.dx, c.before, c.channels), r.dw.values(), r.db.values()};
}

void compare(const Case& c, Dtype storage) {
  SCOPED_TRACE(testing::Message() << c.channels << " channels in " << execution::name(storage));
  Random random;
  const Problem p(c, storage, random);
  const Results expected = reference(c, p);
  const DeviceArray x(p.x), w(p.w), b(p.b), dy(p.dy), seq_idx(p.seq_idx), y(p.y), dx(p.dx),
      dw(p.dw), db(p.db), room(p.room);
  const auto at = [&](const Array& array) -> const DeviceArray& {
    const std::pair<const Array*, const DeviceArray*> all[] = {
        {&p.x, &x}, {&p.w, &w},   {&p.b, &b},   {&p.dy, &dy}, {&p.seq_idx, &seq_idx},
        {&p.y, &y}, {&p.dx, &dx}, {&p.dw, &dw}, {&p.db, &db}, {&p.room, &room}};
    for (const auto& [key, value] : all)
      if (key == &array) return *value;
    return x;
  };
  on_gpu_queue([&](Queue& q) { enqueue(q, c, p, at, false); });
  const double rounded = tolerance(storage, kConv1dMaxWidth, 16);
  const double sums = tolerance(Dtype::fp32, static_cast<double>(p.n), 16);
  const Array first = dx.host(), first_dw = dw.host();
  EXPECT_LT(relative_error(y.host().values(), expected.y), rounded);
  EXPECT_LT(relative_error(columns_of(first, c.before, c.channels), expected.dx), rounded);
  EXPECT_LT(relative_error(first_dw.values(), expected.dw), sums);
  EXPECT_LT(relative_error(db.host().values(), expected.db), sums);

  on_gpu_queue([&](Queue& q) { enqueue(q, c, p, at, false); }, 100,
               [&] {
                 EXPECT_EQ(dw.host().values(), first_dw.values());
                 EXPECT_EQ(columns_of(dx.host(), c.before, c.channels),
                           columns_of(first, c.before, c.channels));
               });
  on_gpu_queue([&](Queue& q) { enqueue(q, c, p, at, true); });
  EXPECT_LT(relative_error(dw.host().values(), doubled(expected.dw)), sums);
  EXPECT_LT(relative_error(db.host().values(), doubled(expected.db)), sums);
}

Packed documents() { return Packed({70, 1, 1, 2, 3, 4, 62, 64, 33, 528, 5}, 21); }

TEST(conv1d_queue_gpu, fp32) {
  STOWAGE_NEED_GPU();
  compare({37, 5, 2, documents()}, Dtype::fp32);
  compare({320, 0, 0, Packed({1})}, Dtype::fp32);
  compare({320, 64, 8, Packed({2, 200})}, Dtype::fp32);
}

TEST(conv1d_queue_gpu, bf16_any_columns) {
  STOWAGE_NEED_GPU();
  compare({37, 5, 2, documents()}, Dtype::bf16);
  compare({272, 14, 2, documents()}, Dtype::bf16);
}

TEST(conv1d_queue_gpu, bf16_by_vectors) {
  STOWAGE_NEED_GPU();
  compare({264, 64, 8, Packed({1})}, Dtype::bf16);
  compare({1032, 16, 24, documents()}, Dtype::bf16);
}

TEST(conv1d_queue_gpu, narrower_filters) {
  STOWAGE_NEED_GPU();
  for (const std::int64_t taps : {2, 3}) {
    compare({37, 5, 2, documents(), taps}, Dtype::fp32);
    compare({37, 5, 2, documents(), taps}, Dtype::bf16);
    compare({1032, 16, 24, documents(), taps}, Dtype::bf16);
  }
}

TEST(conv1d_queue_gpu, no_tokens) {
  STOWAGE_NEED_GPU();
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
    const Case c{16, 0, 0, Packed({})};
    Random random;
    const Problem p(c, storage, random);
    const DeviceArray x(p.x), w(p.w), b(p.b), dy(p.dy), seq_idx(p.seq_idx), dx(p.dx), dw(p.dw),
        db(p.db);
    on_gpu_queue([&](Queue& q) {
      conv1d_silu_backward(q,
                           {.dy = dy,
                            .x = x.columns(0, 16),
                            .w = w,
                            .b = b,
                            .seq_idx = seq_idx,
                            .dx = dx.columns(0, 16),
                            .dw = dw,
                            .db = db,
                            .workspace = {}},
                           false);
    });
    EXPECT_EQ(dw.host().values(), Values(64, 0.0));
    EXPECT_EQ(db.host().values(), Values(16, 0.0));
  }
}

}  // namespace
}  // namespace stowage::kernels::test
