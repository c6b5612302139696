#include "kernels/attention/attention_cuda.hpp"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "execution/dtype.hpp"

// The device kernels against fp64 written from the definition, on inputs as rounded to bf16.
namespace stowage::kernels {
namespace {

using execution::Bf16;

/// Device memory that begins as NaN in every format.
template <class T>
class Device {
 public:
  explicit Device(std::size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, bytes()), cudaSuccess);
    poison();
  }
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { cudaFree(data_); }

  void poison() { EXPECT_EQ(cudaMemset(data_, 0xFF, bytes()), cudaSuccess); }
  T* data() { return static_cast<T*>(data_); }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  std::size_t bytes() const { return std::max<std::size_t>(count_, 1) * sizeof(T); }
  std::size_t count_;
  void* data_ = nullptr;
};

struct Case {
  std::vector<int> lengths;
  int heads, kv_heads, head_dim;
  bool causal, packed;
  std::int64_t stored_limit_bytes;
};

/// One problem: bf16 inputs in one fused matrix, device results, fp64 results.
class Problem {
 public:
  Problem(const Case& c, unsigned seed) : c_(c), columns_((c.heads + 2 * c.kv_heads) * c.head_dim) {
    for (const int length : c.lengths) starts_.push_back(starts_.back() + length);
    tokens_ = starts_.back();
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<Bf16>& values, std::size_t count) {
      values.resize(count);
      for (Bf16& value : values) value = Bf16(normal(generator));
    };
    fill(qkv_, static_cast<std::size_t>(tokens_ * columns_));
    fill(d_o_, static_cast<std::size_t>(tokens_ * c.heads * c.head_dim));
  }

  /// Relative errors of o, lse, dq|dk|dv by norm.
  struct Errors {
    double o, lse, gradients;
  };

  Errors run() {
    const AttentionLayout layout = this->layout();
    Device<Bf16> qkv(qkv_), d_o(d_o_), o(d_o_.size()), gradient(qkv_.size());
    Device<float> lse(static_cast<std::size_t>(c_.heads * tokens_));
    Device<int> starts(starts_);
    Device<unsigned char> forward_room(attention_forward_cuda_workspace_bytes(layout));
    Device<unsigned char> backward_room(attention_backward_cuda_workspace_bytes(layout));
    const int k = c_.heads * c_.head_dim;
    const int v = k + c_.kv_heads * c_.head_dim;
    attention_forward_cuda(layout,
                           {qkv.data(), qkv.data() + k, qkv.data() + v, o.data(), lse.data(),
                            starts.data(), forward_room.data()},
                           nullptr);
    attention_backward_cuda(layout,
                            {d_o.data(), qkv.data(), qkv.data() + k, qkv.data() + v, o.data(),
                             lse.data(), starts.data(), gradient.data(), gradient.data() + k,
                             gradient.data() + v, backward_room.data()},
                            nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    reference();
    gradient_bits_ = gradient.host();
    return {error(o.host(), o_), error(lse.host(), lse_), error(gradient_bits_, gradient_)};
  }

  const std::vector<Bf16>& gradient_bits() const { return gradient_bits_; }

 private:
  AttentionLayout layout() const {
    AttentionLayout layout;
    layout.tokens = tokens_;
    layout.heads = c_.heads;
    layout.kv_heads = c_.kv_heads;
    layout.head_dim = c_.head_dim;
    layout.causal = c_.causal;
    layout.scale = 1.0F / std::sqrt(static_cast<float>(c_.head_dim));
    layout.documents = static_cast<int>(c_.lengths.size());
    layout.uniform_length = c_.packed ? 0 : c_.lengths[0];
    layout.q_stride = layout.k_stride = layout.v_stride = columns_;
    layout.o_stride = c_.heads * c_.head_dim;
    layout.stored_limit_bytes = c_.stored_limit_bytes;
    return layout;
  }

  double qkv(int row, int column) const {
    return static_cast<double>(qkv_[static_cast<std::size_t>(row * columns_ + column)]);
  }

  void reference() {
    o_.assign(d_o_.size(), 0);
    lse_.assign(static_cast<std::size_t>(c_.heads * tokens_), 0);
    gradient_.assign(qkv_.size(), 0);
    for (std::size_t d = 0; d + 1 < starts_.size(); ++d) {
      for (int head = 0; head < c_.heads; ++head) {
        for (int row = starts_[d]; row < starts_[d + 1]; ++row) reference_row(d, head, row);
      }
    }
  }

  void reference_row(std::size_t d, int head, int row) {
    const int p = c_.head_dim;
    const int q0 = head * p;
    const int k0 = (c_.heads + head / (c_.heads / c_.kv_heads)) * p;
    const int v0 = k0 + c_.kv_heads * p;
    const int end = c_.causal ? row + 1 : starts_[d + 1];
    const double scale = layout().scale;
    std::vector<double> probability;
    double sum = 0;
    for (int key = starts_[d]; key < end; ++key) {
      double score = 0;
      for (int i = 0; i < p; ++i) score += qkv(row, q0 + i) * qkv(key, k0 + i);
      probability.push_back(std::exp(score * scale));
      sum += probability.back();
    }
    const auto out = static_cast<std::size_t>((row * c_.heads + head) * p);
    lse_[static_cast<std::size_t>(head * tokens_ + row)] = std::log(sum);
    double delta = 0;
    for (int i = 0; i < p; ++i) {
      double value = 0;
      for (int key = starts_[d]; key < end; ++key) {
        value += probability[static_cast<std::size_t>(key - starts_[d])] / sum * qkv(key, v0 + i);
      }
      o_[out + static_cast<std::size_t>(i)] = value;
      delta += value * static_cast<double>(d_o_[out + static_cast<std::size_t>(i)]);
    }
    for (int key = starts_[d]; key < end; ++key) {
      const double w = probability[static_cast<std::size_t>(key - starts_[d])] / sum;
      double dp = 0;
      for (int i = 0; i < p; ++i) {
        dp += static_cast<double>(d_o_[out + static_cast<std::size_t>(i)]) * qkv(key, v0 + i);
      }
      const double ds = w * (dp - delta) * scale;
      for (int i = 0; i < p; ++i) {
        gradient(row, q0 + i) += ds * qkv(key, k0 + i);
        gradient(key, k0 + i) += ds * qkv(row, q0 + i);
        gradient(key, v0 + i) += w * static_cast<double>(d_o_[out + static_cast<std::size_t>(i)]);
      }
    }
  }

  double& gradient(int row, int column) {
    return gradient_[static_cast<std::size_t>(row * columns_ + column)];
  }

  template <class T>
  static double error(const std::vector<T>& values, const std::vector<double>& expected) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      difference += std::pow(static_cast<double>(values[i]) - expected[i], 2);
      norm += expected[i] * expected[i];
    }
    return std::sqrt(difference / norm);
  }

  Case c_;
  int columns_;
  int tokens_ = 0;
  std::vector<int> starts_ = {0};
  std::vector<Bf16> qkv_, d_o_, gradient_bits_;
  std::vector<double> o_, lse_, gradient_;
};

bool no_device() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0;
}

/// bf16 rounds to 2^-9 of a value; o is rounded twice (P and o), a gradient three times (P or dS, o
/// within delta, the result), each with a random sign: sqrt(2), sqrt(3) of 2^-8 / sqrt(3), times 2.
constexpr double kOutputTolerance = 2 * 1.42 * 0x1p-8 / 1.73;
constexpr double kGradientTolerance = 2 * 1.74 * 0x1p-8 / 1.73;
constexpr double kLseTolerance = 1e-5;  // fp32, sums of up to 700 terms

void check(const Case& c) {
  if (no_device()) GTEST_SKIP() << "no CUDA device";
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed) + ", head_dim " + std::to_string(c.head_dim));
  Problem problem(c, seed);
  const Problem::Errors errors = problem.run();
  EXPECT_LT(errors.o, kOutputTolerance);
  EXPECT_LT(errors.lse, kLseTolerance);
  EXPECT_LT(errors.gradients, kGradientTolerance);
  const std::vector<Bf16> first = problem.gradient_bits();
  problem.run();
  for (std::size_t i = 0; i < first.size(); ++i) {
    ASSERT_EQ(first[i].bits, problem.gradient_bits()[i].bits) << "element " << i;
  }
}

constexpr std::int64_t kAll = std::int64_t{1} << 30;
const std::vector<int> kRagged = {1, 5, 0, 127, 128, 129, 300, 64, 65, 0, 0};

TEST(attention_gpu, equal_lengths) {
  for (const int head_dim : {64, 128}) check({{200, 200}, 4, 2, head_dim, true, false, kAll});
}

TEST(attention_gpu, equal_lengths_recomputed) {
  for (const int head_dim : {64, 128}) check({{200, 200}, 4, 2, head_dim, true, false, 0});
}

TEST(attention_gpu, packed_documents_with_empty_ones) {
  for (const int head_dim : {64, 128}) check({kRagged, 3, 1, head_dim, true, true, kAll});
}

TEST(attention_gpu, packed_documents_stored_in_part) {
  // Room for 10 blocks of each head: the longest documents are recomputed, the others stored.
  for (const int head_dim : {64, 128}) check({kRagged, 3, 1, head_dim, true, true, 3 * 10 * 16384});
}

TEST(attention_gpu, all_keys_visible) {
  for (const int head_dim : {64, 128}) {
    check({kRagged, 2, 2, head_dim, false, true, kAll});
    check({kRagged, 2, 2, head_dim, false, true, 0});
  }
}

TEST(attention_gpu, other_head_dimensions) {
  for (const int head_dim : {8, 80, 96, 256}) check({{1, 40, 7}, 2, 1, head_dim, true, true, kAll});
}

}  // namespace
}  // namespace stowage::kernels
