#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"
#include "execution/cuda_check.hpp"
#include "kernels/cross_entropy/linear_cross_entropy.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/linear/dense_product.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::Transpose;

constexpr std::int64_t kCheckedRows = 2;
constexpr std::int64_t kCheckedWords = 8;  // of which dw is compared
constexpr double kWeightDeviation = 0.02;

/// Bound of losses whose logits are exact: the sum's errors are independent, and stand in its log.
double softmax_tolerance(std::int64_t vocabulary) {
  const auto words = static_cast<double>(vocabulary);
  return execution::epsilon(Dtype::fp32) * (1 + std::sqrt(std::log2(words)) / std::log(words));
}

/// The fused head: losses, dh and dw of h (n, D), w (V, D). The peer "cublas" is its three products
/// alone, through the same chunks: what no loss can be faster than by these means.
/// @tparam kZLoss with the z-loss of PaLM beside it
template <bool kGradients, bool kZLoss = false>
class HeadCase final : public OperatorCase<kernels::LinearCrossEntropy> {
 public:
  HeadCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.tokens = shape["n"],
                      .vocabulary = shape["V"],
                      .width = shape["D"],
                      .storage = Dtype::bf16,
                      .gradients = kGradients,
                      .accumulate = false,
                      .z_coeff = kZCoeff},
                     seed),
        n_(op_.tokens),
        v_(op_.vocabulary),
        d_(op_.width) {
    o_.w->fill_normal(seed, 0, kWeightDeviation);
    const float scale = 1 / static_cast<float>(n_);
    if (kGradients) o_.scale->upload(&scale);
    std::mt19937_64 engine(static_cast<std::uint64_t>(seed));
    std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(v_ - 1));
    for (std::int64_t t = 0; t < n_; ++t) target_.push_back(token(engine));
    o_.targets->upload(target_.data());
  }
  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    if (implementation == "cublas")
      products(static_cast<cudaStream_t>(queue.stream()));
    else
      OperatorCase::enqueue(implementation, queue);
  }

  // Losses and dh of the first rows; dh is of a rounded gradient, and so is dw.
  std::vector<Agreement> check(const std::string& implementation) override {
    if (implementation != "ours") return {};
    const std::vector<double> h = o_.h->rows(0, kCheckedRows), w = o_.w->values();
    std::vector<double> losses(kCheckedRows), dh(h.size()), logits(static_cast<std::size_t>(v_));
    std::vector<double> log_sums;
    for (std::int64_t t = 0; t < kCheckedRows; ++t) {
      const auto target = static_cast<std::size_t>(target_[t]);
      double sum = 0;
      for (std::size_t j = 0; j < logits.size(); ++j) {
        logits[j] = dot(h.data() + t * d_, w.data() + static_cast<std::int64_t>(j) * d_);
        sum += std::exp(logits[j]);
      }
      losses[t] = std::log(sum) - logits[target];
      log_sums.push_back(std::log(sum));
      for (std::size_t j = 0; j < logits.size(); ++j) {
        const double gradient =
            (std::exp(logits[j]) / sum * z_factor(std::log(sum)) - (j == target ? 1 : 0)) /
            static_cast<double>(n_);
        for (std::int64_t k = 0; k < d_; ++k)
          dh[t * d_ + k] +=
              gradient * w[j * static_cast<std::size_t>(d_) + static_cast<std::size_t>(k)];
      }
    }
    const std::string over = some_of(kCheckedRows, n_, "rows");
    std::vector<Agreement> all = {{"losses",
                                   relative_error(o_.losses->rows(0, kCheckedRows), losses),
                                   loss_tolerance(), false, over}};
    if (kZCoeff > 0) {
      std::vector<double> z_losses;
      for (const double log_sum : log_sums) z_losses.push_back(kZCoeff * log_sum * log_sum);
      all.push_back({"z_losses", relative_error(o_.z_losses->rows(0, kCheckedRows), z_losses),
                     2 * loss_tolerance(), false, over});
    }
    if (!kGradients) return all;
    const double gradients = 2 * execution::epsilon(Dtype::bf16);
    all.push_back({"dh", relative_error(o_.dh->rows(0, kCheckedRows), dh), gradients, false, over});
    all.push_back(check_dw(gradients));
    return all;
  }

 private:
  static constexpr double kZCoeff = kZLoss ? 1e-4 : 0;

  /// What the z-loss multiplies a token's softmax by.
  static double z_factor(double log_sum) { return 1 + 2 * kZCoeff * log_sum; }

  /// Of a loss near log V: the error of its target's logit, which is a product of D terms of that
  /// size, and the softmax's; twice, since few rows are looked at.
  double loss_tolerance() const {
    const double logit = kWeightDeviation * std::sqrt(static_cast<double>(d_));
    return 2 * (tensor_core_tolerance(static_cast<double>(d_)) * logit /
                    std::log(static_cast<double>(v_)) +
                softmax_tolerance(v_));
  }

  /// dw of words that are targets of some rows, and of the first and last. The sum of exponentials
  /// of each row follows from its loss, which is compared above, and its target's logit: so a row
  /// of dw costs the logits of one word, not of all.
  Agreement check_dw(double tolerance) const {
    const std::vector<double> h = o_.h->values(), losses = o_.losses->values();
    std::vector<double> log_sums;
    for (std::int64_t t = 0; t < n_; ++t) {
      const auto at = static_cast<std::size_t>(t);
      const std::vector<double> target = o_.w->rows(target_[at], 1);
      log_sums.push_back(losses[at] + dot(h.data() + t * d_, target.data()));
    }
    std::vector<double> made, reference;
    for (const std::int64_t word : checked_words()) {
      const std::vector<double> w = o_.w->rows(word, 1), row = o_.dw->rows(word, 1);
      std::vector<double> sum(static_cast<std::size_t>(d_));
      for (std::int64_t t = 0; t < n_; ++t) {
        const auto at = static_cast<std::size_t>(t);
        const double* line = h.data() + t * d_;
        const double gradient =
            (std::exp(dot(line, w.data()) - log_sums[at]) * z_factor(log_sums[at]) -
             (target_[at] == word ? 1 : 0)) /
            static_cast<double>(n_);
        for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += gradient * line[k];
      }
      made.insert(made.end(), row.begin(), row.end());
      reference.insert(reference.end(), sum.begin(), sum.end());
    }
    return {"dw", relative_error(made, reference), tolerance, false,
            some_of(kCheckedWords, v_, "words")};
  }

  std::vector<std::int64_t> checked_words() const {
    std::vector<std::int64_t> words = {0, v_ - 1};
    for (std::int64_t i = 0; i < kCheckedWords - 2; ++i)
      words.push_back(target_[i * (n_ - 1) / (kCheckedWords - 3)]);
    return words;
  }

  double dot(const double* a, const double* b) const {
    double sum = 0;
    for (std::int64_t k = 0; k < d_; ++k) sum += a[k] * b[k];
    return sum;
  }

  void products(cudaStream_t stream) const {
    const std::int64_t chunk = kernels::cross_entropy_device_chunk(n_, v_);
    for (std::int64_t begin = 0; begin < n_; begin += chunk) {
      const std::int64_t rows = std::min(chunk, n_ - begin);
      const std::uint16_t* h = o_.h->as<const std::uint16_t>() + begin * d_;
      kernels::dense_product(kernels::dense_shape(rows, v_, d_, Transpose::no, Transpose::yes,
                                                  Dtype::bf16, Dtype::fp32, false),
                             h, o_.w->data(), o_.workspace->data(), stream);
      if (!kGradients) continue;
      auto dh = kernels::dense_shape(rows, d_, v_, Transpose::no, Transpose::no, Dtype::bf16,
                                     Dtype::bf16, false);
      auto dw = kernels::dense_shape(v_, d_, rows, Transpose::yes, Transpose::no, Dtype::bf16,
                                     Dtype::fp32, begin > 0);
      dh.a_stride = dw.a_stride = 2 * v_;
      kernels::dense_product(dh, o_.workspace->data(), o_.w->data(),
                             o_.dh->as<std::uint16_t>() + begin * d_, stream);
      kernels::dense_product(dw, o_.workspace->data(), h, o_.dw->data(), stream);
    }
  }

  std::int64_t n_, v_, d_;
  std::vector<std::int32_t> target_;
};

/// The pass over rows of logits (n, V) alone: losses, and the gradient in their place. What a
/// launch leaves is no longer logits, so it is checked once, and timed on what it finds.
class SoftmaxCase final : public Case {
 public:
  SoftmaxCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : n_(shape["n"]),
        v_(shape["V"]),
        logits_(gpu, "logits", Role::update, Dtype::fp32, {n_, v_}),
        targets_(gpu, "targets", Role::input, Dtype::int32, {n_}),
        scale_(gpu, "scale", Role::input, Dtype::fp32, {1}),
        losses_(gpu, "losses", Role::output, Dtype::fp32, {n_}) {
    operands = {&logits_, &targets_, &scale_, &losses_};
    logits_.fill_normal(seed, 0, 1);
    first_ = logits_.rows(0, kCheckedRows);
    scale_.upload(&kScale);
    for (std::int64_t t = 0; t < n_; ++t)
      target_.push_back(static_cast<std::int32_t>(t * 7919 % v_));
    targets_.upload(target_.data());
  }
  /// Reads the logits, writes a gradient of half their bytes.
  execution::Cost cost() const override {
    return {0, 1.5 * static_cast<double>(logits_.bytes()) + 8.0 * static_cast<double>(n_)};
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    const int code =
        kernels::cross_entropy::launch<execution::Bf16>({.rows = n_,
                                                         .vocabulary = v_,
                                                         .logits = logits_.as<float>(),
                                                         .targets = targets_.as<std::int32_t>(),
                                                         .losses = losses_.as<float>(),
                                                         .scale = scale_.as<float>()},
                                                        queue.stream());
    STOWAGE_CUDA(static_cast<cudaError_t>(code));
  }
  std::vector<Agreement> check(const std::string&) override {
    std::vector<double> losses, gradients, targets;
    for (std::int64_t t = 0; t < kCheckedRows; ++t) {
      const double* row = first_.data() + t * v_;
      double sum = 0;
      for (std::int64_t j = 0; j < v_; ++j) sum += std::exp(row[j]);
      const std::int32_t target = target_[t];
      losses.push_back(std::log(sum) - row[target]);
      for (std::int64_t j = 0; j < v_; ++j)
        gradients.push_back(kScale * (std::exp(row[j]) / sum - (j == target ? 1 : 0)));
    }
    // A target's gradient is larger than all others together: they are compared apart.
    std::vector<double> made = gradient_rows(), made_targets;
    for (std::int64_t t = 0; t < kCheckedRows; ++t) {
      const auto at = static_cast<std::size_t>(t * v_ + target_[t]);
      targets.push_back(std::exchange(gradients[at], 0));
      made_targets.push_back(std::exchange(made[at], 0));
    }
    const std::string over = some_of(kCheckedRows, n_, "rows");
    const double rounding = execution::epsilon(Dtype::bf16);
    return {{"losses", relative_error(losses_.rows(0, kCheckedRows), losses), softmax_tolerance(v_),
             false, over},
            {"gradients", relative_error(made, gradients), rounding, false,
             over + " without their targets"},
            {"target_gradients", relative_error(made_targets, targets), rounding, false, over}};
  }

 private:
  // No power of two, and no few bits: rounding it in a target's gradient would cost nothing.
  static constexpr float kScale = 0.7F / 2048;

  // The gradient of a row in bf16 takes the first half of its logits' bytes.
  std::vector<double> gradient_rows() const {
    const std::vector<std::byte> content = logits_.download();
    std::vector<double> values;
    for (std::int64_t t = 0; t < kCheckedRows; ++t)
      for (std::int64_t j = 0; j < v_; ++j) {
        execution::Bf16 value;
        std::memcpy(&value, content.data() + 4 * t * v_ + 2 * j, sizeof value);
        values.push_back(static_cast<double>(value));
      }
    return values;
  }

  std::int64_t n_, v_;
  Operand logits_, targets_, scale_, losses_;
  std::vector<std::int32_t> target_;
  std::vector<double> first_;
};

template <bool kGradients, bool kZLoss = false>
Entry entry(const char* name, const char* help) {
  Entry made =
      operator_entry<HeadCase<kGradients, kZLoss>>(name, help,
                                                   {Shape{{"n", 16384}, {"V", 65536}, {"D", 2048}},
                                                    Shape{{"n", 65536}, {"V", 50304}, {"D", 768}}});
  made.implementations.push_back(
      {"cublas", kernels::product_library(), "", "its products alone, by the table of algorithms"});
  return made;
}

}  // namespace

std::vector<Entry> cross_entropy_entries() {
  return {
      entry<true>("linear_cross_entropy", "losses, dh, dw of h (n, D), w (V, D)"),
      entry<true, true>("linear_cross_entropy_z_loss", "the same with a z-loss of weight 1e-4"),
      entry<false>("linear_cross_entropy_loss", "losses alone"),
      {.name = "softmax_gradient",
       .help = "losses of logits (n, V) fp32, and in their place the gradient in bf16",
       .shapes = {Shape{{"n", 2048}, {"V", 65536}}, Shape{{"n", 2560}, {"V", 50304}},
                  Shape{{"n", 1024}, {"V", 131072}}},
       .implementations = {{"ours", "", ""}},
       .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
         return std::make_unique<SoftmaxCase>(gpu, shape, seed);
       }}};
}

}  // namespace stowage::drivers::bench
