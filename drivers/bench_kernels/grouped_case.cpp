#include "drivers/bench_kernels/grouped_case.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "execution/cuda_check.hpp"
#include "execution/error.hpp"

namespace stowage::drivers::bench {

using execution::Dtype;
using kernels::Transpose;

namespace {

/// In eight sums side by side, which need not wait for each other.
double dot(const std::vector<double>& a, const double* b) {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= a.size(); i += 8)
    for (std::size_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
  return std::accumulate(sums, sums + 8, 0.0);
}

}  // namespace

std::vector<std::int32_t> expert_offsets(std::int64_t experts, std::int64_t rows,
                                         std::int64_t load) {
  std::vector<double> share(static_cast<std::size_t>(experts), load == 2 ? 0 : 1);
  if (load == 1) {
    // 7 is prime to the powers of two that expert counts are: every expert has another place.
    for (std::size_t e = 0; e < share.size(); ++e)
      share[e * 7 % share.size()] = 1 / static_cast<double>(e + 1);
  }
  if (load == 2) share[share.size() / 3] = 1;
  const double whole = std::accumulate(share.begin(), share.end(), 0.0);
  std::vector<std::int32_t> offsets{0};
  double before = 0;
  for (const double part : share) {
    before += part;
    offsets.push_back(
        static_cast<std::int32_t>(std::lround(static_cast<double>(rows) * before / whole)));
  }
  return offsets;
}

std::vector<std::array<std::int64_t, 4>> grouped_sizes() {
  return {{64, 32768, 2048, 1408},
          {128, 49152, 2688, 1856},
          {32, 65536, 2048, 1024},
          {16, 16384, 2048, 5632},
          {8, 16384, 4096, 14336}};
}

ExpertLoop::ExpertLoop(run::Gpu& gpu, const std::vector<Product>& products,
                       const std::vector<std::span<std::byte>>& cleared)
    : workspace_(gpu.device_memory(kernels::kProductWorkspaceBytes)) {
  for (const Product& p : products)
    if (!plans_.contains(p.shape)) plans_.try_emplace(p.shape, p.shape, 1);
  const auto stream = static_cast<cudaStream_t>(gpu.queue().stream());
  const auto run = [&] {
    for (const std::span<std::byte> bytes : cleared)
      STOWAGE_CUDA(cudaMemsetAsync(bytes.data(), 0, bytes.size(), stream));
    for (const Product& p : products)
      plans_.at(p.shape).run(0, p.a, p.b, p.c, workspace_->data(), stream);
  };
  run();  // the library loads its kernels outside of the capture
  gpu.queue().synchronize();
  gpu.backend().begin_capture(gpu.queue());
  run();
  graph_ = gpu.backend().end_capture(gpu.queue());
}

GroupedCase::GroupedCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed, Role x, Role w,
                         Role y)
    : experts_(shape["E"]),
      rows_(shape["rows"]),
      m_(shape["M"]),
      k_(shape["K"]),
      places_(expert_offsets(experts_, rows_, shape["load"])),
      x_(gpu, x == Role::output ? "dx" : "x", x, Dtype::bf16, {rows_, k_}),
      w_(gpu, w == Role::input ? "w" : "dw", w, w == Role::input ? Dtype::bf16 : Dtype::fp32,
         {experts_, m_, k_}),
      y_(gpu, y == Role::output ? "y" : "dy", y, Dtype::bf16, {rows_, m_}),
      offsets_(gpu, "offsets", Role::input, Dtype::int32, {experts_ + 1}),
      bound_{Bound(x_), Bound(w_), Bound(y_), Bound(offsets_)} {
  if (x == Role::input) x_.fill_normal(seed, 0, 1);
  if (y == Role::input) y_.fill_normal(seed, 0, 1);
  w_.fill_normal(seed, 0, 0.02);
  offsets_.upload(places_.data());
  operands = {&x_, &w_, &y_, &offsets_};
}

std::vector<GroupedCase::Expert> GroupedCase::busy() const {
  std::vector<Expert> all;
  for (std::int64_t e = 0; e < experts_; ++e) {
    const auto i = static_cast<std::size_t>(e);
    if (places_[i + 1] > places_[i]) all.push_back({e, places_[i], places_[i + 1] - places_[i]});
  }
  return all;
}

void* GroupedCase::at(const Operand& operand, std::int64_t element) const {
  return operand.as<std::byte>() + element * static_cast<std::int64_t>(size_bytes(operand.dtype()));
}

std::unique_ptr<ExpertLoop> GroupedCase::forward_loop(run::Gpu& gpu) const {
  std::vector<ExpertLoop::Product> products;
  for (const Expert& e : busy())
    products.push_back({kernels::dense_shape(e.rows, m_, k_, Transpose::no, Transpose::yes,
                                             Dtype::bf16, Dtype::bf16, false),
                        at(x_, e.first * k_), at(w_, e.index * m_ * k_), at(y_, e.first * m_)});
  return std::make_unique<ExpertLoop>(gpu, products);
}

std::unique_ptr<ExpertLoop> GroupedCase::backward_input_loop(run::Gpu& gpu) const {
  std::vector<ExpertLoop::Product> products;
  for (const Expert& e : busy())
    products.push_back({kernels::dense_shape(e.rows, k_, m_, Transpose::no, Transpose::no,
                                             Dtype::bf16, Dtype::bf16, false),
                        at(y_, e.first * m_), at(w_, e.index * m_ * k_), at(x_, e.first * k_)});
  return std::make_unique<ExpertLoop>(gpu, products);
}

std::vector<Agreement> GroupedCase::agree(const std::string& implementation,
                                          const std::string& what, double error, double tolerance,
                                          const std::string& over) {
  std::vector<Agreement> all = {{what, error, tolerance, false, over}};
  if (implementation == "ours")
    ours_error_[what] = error;
  else if (ours_error_.contains(what))
    all.push_back({what + ".ratio", ours_error_.at(what) / error, 1.2, true, over});
  return all;
}

const GroupedCase::Sampled& GroupedCase::sample_products(const Operand& from, std::int64_t columns,
                                                         bool transposed) {
  if (!sampled_.rows.empty()) return sampled_;
  const auto depth = static_cast<std::size_t>(from.shape()[1]);
  const auto width = static_cast<std::size_t>(columns);
  std::vector<double> w;
  std::int64_t loaded = -1;
  for (std::int64_t i = 0; i < kSampledRows; ++i) {
    const std::int64_t row = i * (rows_ - 1) / (kSampledRows - 1);
    const std::int64_t expert =
        std::upper_bound(places_.begin(), places_.end(), row) - places_.begin() - 1;
    if (expert != loaded) w = w_.rows(expert, 1);
    loaded = expert;
    const std::vector<double> a = from.rows(row, 1);
    std::vector<double> sums(width);
    // The inner loops run along the rows of w.
    if (transposed) {
      for (std::size_t l = 0; l < depth; ++l)
        for (std::size_t j = 0; j < width; ++j) sums[j] += a[l] * w[l * width + j];
    } else {
      for (std::size_t j = 0; j < width; ++j) sums[j] = dot(a, w.data() + j * depth);
    }
    sampled_.rows.push_back(row);
    sampled_.values.push_back(std::move(sums));
  }
  return sampled_;
}

std::vector<Agreement> GroupedCase::check_rows(const std::string& implementation,
                                               const Operand& from, const Operand& to,
                                               bool transposed) {
  const Sampled& sampled = sample_products(from, to.shape()[1], transposed);
  std::vector<double> out, reference;
  for (std::size_t i = 0; i < sampled.rows.size(); ++i) {
    const std::vector<double> made = to.rows(sampled.rows[i], 1);
    out.insert(out.end(), made.begin(), made.end());
    reference.insert(reference.end(), sampled.values[i].begin(), sampled.values[i].end());
  }
  return agree(implementation, to.name(), relative_error(out, reference),
               execution::epsilon(Dtype::bf16), some_of(kSampledRows, rows_, "rows"));
}

}  // namespace stowage::drivers::bench
