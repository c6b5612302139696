// Activations on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/device_check.hpp"
#include "kernels/activation/activation.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t rows, columns, valid;
  bool weighted;
};

// One row, none, none valid, rows that are not whole packs, each number of lanes of a row.
constexpr Sizes kSizes[] = {{1, 1, 1, true},        {0, 8, 0, false},       {6, 8, 0, true},
                            {37, 19, 37, true},     {40, 33, 21, false},    {1000, 1024, 777, true},
                            {333, 1025, 300, true}, {129, 2048, 129, true}, {65, 8192, 64, false},
                            {17, 8192, 17, true},   {9, 20000, 9, true}};

class Activations {
 public:
  Activations(Dtype storage, Activation kind, const Sizes& s, const Values& x, const Values& weight,
              const Values& dy)
      : kind_(kind),
        s_(s),
        sums_(execution::accumulation(storage)),
        x_(storage, {s.rows, width()}, x),
        dy_(storage, {s.rows, s.columns}, dy),
        weight_(s.weighted ? Array(sums_, {s.rows}, weight) : Array()),
        // What lies beyond the valid rows must stay as it is: the same in both runs.
        y_(storage, {s.rows, s.columns}, sevens(s.rows * s.columns)),
        dx_(storage, {s.rows, width()}, sevens(s.rows * width())),
        dweight_(s.weighted ? Array(sums_, {s.rows}, sevens(s.rows)) : Array()),
        counts_(int32_array({99, static_cast<std::int32_t>(s.valid), 99})) {}

  template <class At>
  void enqueue(Queue& q, At& at) const {
    activation_forward(q, kind_, at(x_), at(weight_), at(y_), {at(counts_), 1});
    activation_backward(q, kind_, at(dy_), at(x_), at(weight_), at(dx_), at(dweight_),
                        {at(counts_), 1});
  }
  std::vector<Output> outputs() const {
    std::vector<Output> all = {{"y", y_, tolerance(x_.dtype(), 4)},
                               {"dx", dx_, tolerance(x_.dtype(), 4)}};
    if (s_.weighted)
      all.push_back({"dweight", dweight_, tolerance(sums_, static_cast<double>(s_.columns))});
    return all;
  }

  std::int64_t width() const { return activation_width(kind_, s_.columns); }

 private:
  static Values sevens(std::int64_t count) { return Values(static_cast<std::size_t>(count), 7.0); }

  Activation kind_;
  Sizes s_;
  Dtype sums_;
  Array x_, dy_, weight_, y_, dx_, dweight_, counts_;
};

TEST(activation_gpu, matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Activation kind : {Activation::squared_relu, Activation::swiglu})
    for (const Sizes& s : kSizes)
      for (const Dtype storage : kDeviceTypes) {
        SCOPED_TRACE(testing::Message()
                     << s.rows << " x " << s.columns << " kind " << static_cast<int>(kind));
        const Values x =
            rounded(random.normal(s.rows * activation_width(kind, s.columns), 2), storage);
        const Values weight = rounded(random.uniform(s.rows, 0.1, 2), Dtype::fp32);
        const Values dy = rounded(random.normal(s.rows * s.columns), storage);
        check_on_gpu(Activations(storage, kind, s, x, weight, dy),
                     Activations(Dtype::fp64, kind, s, x, weight, dy), s.rows == 1000 ? 100 : 2);
      }
}

TEST(activation_gpu, without_a_count_all_rows_are_valid) {
  STOWAGE_NEED_GPU();
  Random random;
  const Array x(Dtype::fp32, {9, 40}, random.normal(360)), y(Dtype::fp32, {9, 40});
  const auto results =
      on_gpu([&](Queue& q,
                 auto& at) { activation_forward(q, Activation::squared_relu, at(x), {}, at(y)); },
             {y});
  on_queue([&](Queue& q) { activation_forward(q, Activation::squared_relu, x, {}, y); });
  EXPECT_EQ(results[0].values(), y.values());
}

}  // namespace
}  // namespace stowage::kernels::test
