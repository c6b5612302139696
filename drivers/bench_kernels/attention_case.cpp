#include "drivers/bench_kernels/attention_case.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stowage::drivers::bench {

using execution::Dtype;

namespace {

constexpr double kErrorRatio = 1.5;

// Scores have the square of it as their deviation: large ones are some hundreds.
double deviation(const Shape& shape) { return shape["large"] != 0 ? 8 : 1; }

}  // namespace

std::vector<std::int64_t> packed_document_lengths() {
  return {
#include STOWAGE_PACKED_LENGTHS
  };
}

AttentionCase::AttentionCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed,
                             const std::vector<std::int64_t>& lengths)
    : n_(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})),
      h_(shape["H"]),
      k_(shape["K"]),
      p_(shape["P"]),
      causal_(shape["causal"] != 0),
      width_((h_ + 2 * k_) * p_),
      pairs_(kernels::attention_pairs(lengths, causal_)),
      qkv_(gpu, "qkv", Role::input, Dtype::bf16, {n_, width_}),
      cu_seqlens_(gpu, "cu_seqlens", Role::input, Dtype::int32,
                  {static_cast<std::int64_t>(lengths.size()) + 1}) {
  qkv_.fill_normal(seed, 0, deviation(shape));
  std::vector<std::int32_t> starts = {0};
  for (const std::int64_t length : lengths) {
    if (length > sampled_length_) {
      sampled_first_ = starts.back();
      sampled_length_ = length;
    }
    starts.push_back(starts.back() + static_cast<std::int32_t>(length));
  }
  cu_seqlens_.upload(starts.data());
  layout_.tokens = n_;
  layout_.heads = static_cast<int>(h_);
  layout_.kv_heads = static_cast<int>(k_);
  layout_.head_dim = static_cast<int>(p_);
  layout_.causal = causal_;
  layout_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(p_)));
  layout_.documents = static_cast<int>(lengths.size());
  layout_.pairs = pairs_;
  layout_.q = layout_.k = layout_.v = layout_.dq = layout_.dk = layout_.dv = {width_, p_};
  layout_.o = layout_.d_o = {h_ * p_, p_};
  operands = {&qkv_, &cu_seqlens_};
}

kernels::AttentionShape AttentionCase::attention_shape() const {
  return {h_, k_, p_, causal_, 1 / std::sqrt(static_cast<double>(p_)), pairs_};
}

AttentionReference AttentionCase::reference() const {
  AttentionReference made{
      .length = sampled_length_, .heads = group(), .head_dim = p_, .causal = causal_};
  made.q = document_rows(qkv_, 0, group() * p_);
  made.k = document_rows(qkv_, h_ * p_, p_);
  made.v = document_rows(qkv_, (h_ + k_) * p_, p_);
  return made;
}

std::vector<double> AttentionCase::document_rows(const Operand& operand, std::int64_t first,
                                                 std::int64_t count) const {
  const std::int64_t width = operand.elements() / operand.shape().front();
  const std::vector<double> all = operand.rows(sampled_first_, sampled_length_);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(sampled_length_ * count));
  for (std::int64_t row = 0; row < sampled_length_; ++row) {
    const auto at = all.begin() + row * width + first;
    values.insert(values.end(), at, at + count);
  }
  return values;
}

std::vector<double> AttentionCase::document_lse(const Operand& lse, std::int64_t head) const {
  const std::vector<double> row = lse.rows(head, 1);
  const auto first = row.begin() + sampled_first_;
  return {first, first + sampled_length_};
}

void AttentionCase::compare(std::vector<Agreement>& into, const std::string& implementation,
                            const std::string& what, const std::vector<double>& out,
                            const std::vector<double>& ref, double tolerance,
                            const std::string& over) {
  const double error = relative_error(out, ref);
  into.push_back({what, error, tolerance, false, over});
  if (implementation == "ours") our_errors_.emplace_back(what, error);
  if (implementation != "cudnn") return;
  for (const auto& [name, ours] : our_errors_)
    if (name == what)
      into.push_back({what + ".error_of_ours", ours / error, kErrorRatio, true, over});
}

}  // namespace stowage::drivers::bench
