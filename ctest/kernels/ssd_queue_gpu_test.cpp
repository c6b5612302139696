// The scan's queue form on a GPU against its host reference in fp64, on inputs as rounded.

#include <algorithm>
#include <cmath>
#include <limits>

#include "ctest/kernels/device_array.hpp"
#include "ctest/kernels/packed.hpp"
#include "ctest/kernels/support.hpp"
#include "kernels/ssd/ssd.hpp"

namespace stowage::kernels::test {
namespace {

struct Case {
  SsdShape shape;
  Packed packed;
  bool ends = false;  ///< a state enters, and a gradient of the one that leaves

  std::int64_t inner() const { return shape.heads * shape.head_dim; }
  std::int64_t shared() const { return shape.groups * shape.state; }
  std::int64_t width() const { return inner() + 2 * shared(); }
};

/// All operands of forward and backward as a mixer lays them out: [X | B | C] in one tensor, dt in
/// columns of another, at an odd place.
struct Problem {
  Problem(const Case& c, Dtype storage, Random& random)
      : n(c.packed.tokens),
        xbc(storage, {n, c.width()}, random.normal(n * c.width())),
        dt(embedded(storage, n, c.shape.heads, 3, random.normal(n * c.shape.heads))),
        a_log(storage, {c.shape.heads}, random.uniform(c.shape.heads, -3, 1)),
        d(storage, {c.shape.heads}, random.normal(c.shape.heads)),
        dt_bias(storage, {c.shape.heads}, random.uniform(c.shape.heads, -4, 0)),
        seq_idx(c.packed.seq_idx()),
        dy(storage, {n, c.inner()}, random.normal(n * c.inner())),
        y(storage, {n, c.inner()}),
        dxbc(storage, {n, c.width()}),
        ddt(storage, {n, c.shape.heads + 6}),
        da_log(execution::accumulation(storage), {c.shape.heads}),
        dd(execution::accumulation(storage), {c.shape.heads}),
        ddt_bias(execution::accumulation(storage), {c.shape.heads}),
        initial(state(c, storage)),
        dfinal(state(c, storage)),
        final_state(state(c, storage)),
        dinitial(state(c, storage)),
        total_decay(c.ends ? Array(execution::accumulation(storage), {c.shape.heads}) : Array()),
        forward_room(workspace(ssd_forward_workspace_bytes(c.shape, n, storage))),
        backward_room(workspace(ssd_backward_workspace_bytes(c.shape, n, storage))) {
    if (!c.ends) return;
    initial.set(random.normal(c.inner() * c.shape.state));
    dfinal.set(random.normal(c.inner() * c.shape.state));
  }
  static Array state(const Case& c, Dtype storage) {
    if (!c.ends) return {};
    return {execution::accumulation(storage), {c.shape.heads, c.shape.head_dim, c.shape.state}};
  }

  /// The same values in fp64, outputs poisoned.
  Problem in_fp64(const Case& c) const {
    Random unused;
    Problem p(c, Dtype::fp64, unused);
    for (const auto member : {&Problem::xbc, &Problem::dt, &Problem::a_log, &Problem::d,
                              &Problem::dt_bias, &Problem::dy})
      (p.*member).set((this->*member).values());
    if (c.ends) {
      p.initial.set(initial.values());
      p.dfinal.set(dfinal.values());
    }
    return p;
  }

  std::int64_t n;
  Array xbc, dt, a_log, d, dt_bias, seq_idx, dy;
  Array y, dxbc, ddt, da_log, dd, ddt_bias;
  Array initial, dfinal, final_state, dinitial, total_decay;  ///< absent unless the case has ends
  Array forward_room, backward_room;
};

/// Enqueues forward and backward; `at` gives the operand for an array: itself, or its device copy.
template <class At>
void enqueue(Queue& q, const Case& c, const Problem& p, const At& at, bool accumulate) {
  const std::int64_t inner = c.inner(), shared = c.shared(), heads = c.shape.heads;
  SsdEnds ends;
  SsdEndGradients gradients;
  if (c.ends) {
    ends = {at(p.initial), at(p.final_state), at(p.total_decay)};
    gradients = {at(p.initial), at(p.dfinal), at(p.dinitial)};
  }
  const auto& xbc = at(p.xbc);
  const auto& dt = at(p.dt);
  const SsdInputOperands inputs{.x = xbc.columns(0, inner),
                                .dt = dt.columns(3, heads),
                                .b = xbc.columns(inner, shared),
                                .c = xbc.columns(inner + shared, shared),
                                .a_log = at(p.a_log),
                                .d = at(p.d),
                                .dt_bias = at(p.dt_bias),
                                .seq_idx = at(p.seq_idx)};
  ssd_forward(q, c.shape, {.inputs = inputs, .y = at(p.y), .workspace = at(p.forward_room)}, ends);
  const auto& dxbc = at(p.dxbc);
  ssd_backward(q, c.shape,
               {.dy = at(p.dy),
                .inputs = inputs,
                .dx = dxbc.columns(0, inner),
                .ddt = at(p.ddt).columns(5, heads),
                .db = dxbc.columns(inner, shared),
                .dc = dxbc.columns(inner + shared, shared),
                .da_log = at(p.da_log),
                .dd = at(p.dd),
                .ddt_bias = at(p.ddt_bias),
                .workspace = at(p.backward_room)},
               accumulate, gradients);
}

/// Device copies of all arrays of a problem.
class OnDevice {
 public:
  explicit OnDevice(const Problem& p) {
    if (p.initial.view()) {
      for (const Array* array :
           {&p.initial, &p.dfinal, &p.final_state, &p.dinitial, &p.total_decay})
        copies_.emplace_back(array, DeviceArray(*array));
    }
    for (const Array* array :
         {&p.xbc, &p.dt, &p.a_log, &p.d, &p.dt_bias, &p.seq_idx, &p.dy, &p.y, &p.dxbc, &p.ddt,
          &p.da_log, &p.dd, &p.ddt_bias, &p.forward_room, &p.backward_room})
      copies_.emplace_back(array, DeviceArray(*array));
  }
  const DeviceArray& operator()(const Array& array) const {
    return std::ranges::find(copies_, &array, [](const auto& c) { return c.first; })->second;
  }

 private:
  std::vector<std::pair<const Array*, DeviceArray>> copies_;
};

struct Result {
  const char* name;
  Array Problem::*array;
  double roundings;  ///< to storage, on the way, of results that are stored in it
};
constexpr Result kResults[] = {{"y", &Problem::y, 2},     {"dxbc", &Problem::dxbc, 3},
                               {"ddt", &Problem::ddt, 3}, {"da_log", &Problem::da_log, 4},
                               {"dd", &Problem::dd, 0},   {"ddt_bias", &Problem::ddt_bias, 4}};
constexpr Result kEnds[] = {{"final state", &Problem::final_state, 2},
                            {"d initial state", &Problem::dinitial, 2},
                            {"total decay", &Problem::total_decay, 0}};

std::vector<Result> results_of(const Case& c) {
  std::vector<Result> all(std::begin(kResults), std::end(kResults));
  if (c.ends) all.insert(all.end(), std::begin(kEnds), std::end(kEnds));
  return all;
}

/// Relative to the values or to 1, whichever is larger: a single value may be 0.
double error_of(const Values& actual, const Values& expected) {
  return std::min(relative_error(actual, expected), rms_difference(actual, expected));
}

void compare(const Case& c, Dtype storage, bool tensor_cores) {
  Random random;
  const Problem p(c, storage, random);
  Problem expected = p.in_fp64(c);
  on_queue([&](Queue& q) {
    enqueue(
        q, c, expected, [](const Array& a) -> const Array& { return a; }, false);
  });
  const OnDevice device(p);
  on_gpu_queue([&](Queue& q) { enqueue(q, c, p, device, false); });
  const double terms = static_cast<double>(p.n * c.shape.state);
  for (const Result& r : results_of(c)) {
    const auto values = [&](const Array& array) {
      return r.array == &Problem::ddt ? columns_of(array, 5, c.shape.heads) : array.values();
    };
    const double stored = execution::epsilon(storage) *
                          std::max(tensor_cores ? r.roundings : 0.0, r.roundings > 0 ? 1.0 : 0.0);
    const double sums = 64 * execution::epsilon(Dtype::fp32) * std::sqrt(terms);
    EXPECT_LT(error_of(values(device(p.*r.array).host()), values(expected.*r.array)), stored + sums)
        << r.name << " in " << execution::name(storage) << ", tokens " << p.n;
  }
  on_gpu_queue([&](Queue& q) { enqueue(q, c, p, device, true); });
  for (const auto sum : {&Problem::da_log, &Problem::dd, &Problem::ddt_bias}) {
    const Values twice = device(p.*sum).host().values();
    EXPECT_LT(error_of(twice, doubled((expected.*sum).values())), 6 * 0x1p-8);
  }
}

Packed documents() { return Packed({70, 1, 1, 62, 64, 33, 128, 5}, 21); }

// {H, P, G, N, Q}
TEST(ssd_queue_gpu, simple_kernels_fp32) {
  STOWAGE_NEED_GPU();
  compare({{4, 32, 2, 24, 64}, documents()}, Dtype::fp32, false);
  compare({{3, 5, 1, 7, 4}, Packed({1})}, Dtype::fp32, false);
  compare({{8, 64, 1, 128, 64}, Packed({97})}, Dtype::fp32, false);
  compare({{2, 64, 2, 256, 64}, Packed({40, 9})}, Dtype::fp32, false);
}

TEST(ssd_queue_gpu, simple_kernels_bf16) {
  STOWAGE_NEED_GPU();
  compare({{4, 32, 2, 24, 64}, documents()}, Dtype::bf16, false);
}

TEST(ssd_queue_gpu, tensor_cores_bf16_parameters) {
  STOWAGE_NEED_WGMMA();
  compare({{8, 64, 2, 128, 64}, documents()}, Dtype::bf16, true);
  compare({{16, 64, 1, 128, 64}, Packed({1})}, Dtype::bf16, true);
  compare({{4, 128, 2, 64, 64}, documents()}, Dtype::bf16, true);
}

TEST(ssd_queue_gpu, states_at_the_ends) {
  STOWAGE_NEED_GPU();
  for (const auto& packed : {documents(), Packed({97}), Packed({1})}) {
    compare({{4, 32, 2, 24, 64}, packed, true}, Dtype::fp32, false);
    compare({{3, 5, 1, 7, 4}, packed, true}, Dtype::bf16, false);
    compare({{8, 64, 2, 128, 64}, packed, true}, Dtype::bf16, true);
    compare({{4, 128, 2, 64, 64}, packed, true}, Dtype::bf16, true);
  }
}

TEST(ssd_queue_gpu, no_tokens) {
  STOWAGE_NEED_GPU();
  const Case c{{4, 64, 2, 128, 64}, Packed({})};
  Random random;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
    const Problem p(c, storage, random);
    const OnDevice device(p);
    on_gpu_queue([&](Queue& q) { enqueue(q, c, p, device, false); });
    EXPECT_EQ(device(p.da_log).host().values(), Values(4, 0.0));
    EXPECT_EQ(device(p.dd).host().values(), Values(4, 0.0));
    EXPECT_EQ(device(p.ddt_bias).host().values(), Values(4, 0.0));
  }
}

TEST(ssd_queue_gpu, same_bits_in_100_graph_replays) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const auto& [shape, storage] : {std::pair{SsdShape{8, 64, 2, 128, 64}, Dtype::bf16},
                                       std::pair{SsdShape{4, 32, 2, 24, 64}, Dtype::fp32}}) {
    const Case c{shape, documents()};
    const Problem p(c, storage, random);
    const OnDevice device(p);
    const auto bits = [&] {
      std::vector<std::vector<std::byte>> all;
      for (const Result& r : kResults) {
        const Array now = device(p.*r.array).host();
        const auto bytes = now.as<std::byte>();
        all.emplace_back(bytes.begin(), bytes.end());
        device(p.*r.array).upload();
      }
      return all;
    };
    on_gpu_queue([&](Queue& q) { enqueue(q, c, p, device, false); });
    const auto first = bits();
    on_gpu_queue([&](Queue& q) { enqueue(q, c, p, device, false); }, 100,
                 [&] { EXPECT_TRUE(bits() == first); });
  }
}

}  // namespace
}  // namespace stowage::kernels::test
