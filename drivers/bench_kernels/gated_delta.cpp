#include "kernels/gated_delta/gated_delta.hpp"

#include <cmath>

#include "drivers/bench_kernels/attention_case.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using Values = std::vector<double>;

/// The rule over B documents of T tokens or, if `packed`, over as many tokens of documents of many
/// lengths. Compared with the reference is key head 0 with the value heads that read it: key heads
/// share nothing. With kChannels each column has a decay.
template <class Op, bool kChannels>
class GatedDeltaCase : public OperatorCase<Op> {
 public:
  GatedDeltaCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase<Op>(gpu, sizes(shape), seed), group_(this->op_) {
    const auto& in = this->o_.inputs;
    in.a_log->fill_normal(seed, 1.4, 0.7);
    in.dt_bias->fill_normal(seed, -4.6, 0.5);  // steps near 0.01
    const std::vector<std::int64_t> lengths =
        shape["packed"] != 0 ? packed_document_lengths() : std::vector{shape["T"]};
    for (std::size_t i = 0; std::ssize(documents_) < group_.tokens; ++i)
      documents_.insert(documents_.end(), static_cast<std::size_t>(lengths[i % lengths.size()]),
                        static_cast<std::int32_t>(i));
    documents_.resize(static_cast<std::size_t>(group_.tokens));
    in.seq_idx->upload(documents_.data());
    group_.shape.value_heads /= group_.shape.key_heads;
    group_.shape.key_heads = 1;
    group_.storage = Dtype::fp64;
  }

 protected:
  static Op sizes(const Shape& shape) {
    Op op{};
    op.shape = {.key_heads = shape["K"],
                .value_heads = shape["H"],
                .key_dim = shape["N"],
                .value_dim = shape["P"],
                .channel_decay = kChannels};
    op.tokens = shape["B"] * shape["T"];
    op.storage = Dtype::bf16;
    return op;
  }

  /// Those of the group, of [q | k | v] or [b | a] or their gradients.
  Values qkv(const Operand& all) const {
    const auto& whole = this->op_.shape;
    return joined({all.columns(0, whole.key_dim), all.columns(whole.keys(), whole.key_dim),
                   all.columns(2 * whole.keys(), group_.shape.values())});
  }
  Values ba(const Operand& all) const {
    if (kChannels) return heads(all, 0);
    return joined({heads(all, 0), heads(all, this->op_.shape.value_heads)});
  }
  Values heads(const Operand& all, std::int64_t first) const {
    return all.columns(first, group_.shape.value_heads);
  }
  Values of_heads(const Operand& each) const { return each.rows(0, group_.shape.value_heads); }
  Values of_decays(const Operand& each) const { return each.rows(0, group_.shape.decays()); }
  /// Of a or its gradient, which columns of [b | a] are without kChannels.
  template <class Whole>
  Values a(const Whole& all) const {
    return kChannels ? all->columns(0, group_.shape.decays()) : Values();
  }

  /// The inputs of the group in fp64, or room for their gradients.
  struct Group {
    Values qkv, ba, a, a_log, dt_bias;
  };
  Group group() const {
    const auto& in = this->o_.inputs;
    return {qkv(*in.qkv.whole), ba(*in.ba.whole), a(in.a), of_heads(*in.a_log),
            of_decays(*in.dt_bias)};
  }
  template <class T>
  kernels::Matrix<T> matrix(T* data, std::int64_t columns) const {
    return {data, group_.tokens, columns, columns};
  }
  kernels::GatedDeltaInputs<kernels::Pointers<double>> inputs(const Group& g) const {
    return {.qkv = matrix(g.qkv.data(), group_.shape.channels()),
            .ba = matrix(g.ba.data(), group_.shape.gates()),
            .a = g.a.data(),
            .a_log = g.a_log.data(),
            .dt_bias = g.dt_bias.data(),
            .seq_idx = documents_.data(),
            .initial_state = nullptr};
  }
  Agreement agreement(const char* name, const Values& ours, const Values& reference,
                      double bound) const {
    return {name, relative_error(ours, reference), bound, false,
            some_of(group_.shape.value_heads, this->op_.shape.value_heads, "heads")};
  }

  Op group_;
  std::vector<std::int32_t> documents_;

 private:
  /// Rows of which each has its parts.
  Values joined(const std::vector<Values>& parts) const {
    Values all;
    for (std::int64_t t = 0; t < group_.tokens; ++t)
      for (const Values& part : parts) {
        const std::int64_t width = std::ssize(part) / group_.tokens;
        all.insert(all.end(), part.begin() + t * width, part.begin() + (t + 1) * width);
      }
    return all;
  }
};

template <bool kChannels>
struct GatedDeltaForward final : GatedDeltaCase<kernels::GatedDeltaForward, kChannels> {
  using Base = GatedDeltaCase<kernels::GatedDeltaForward, kChannels>;
  using Base::agreement, Base::Base, Base::group, Base::group_, Base::inputs, Base::o_;
  using typename Base::Group;
  // Operands of products are rounded to bf16, and so is y.
  std::vector<Agreement> check(const std::string&) override {
    const Group g = group();
    Values y(static_cast<std::size_t>(group_.tokens * group_.shape.values()));
    on_host([&] {
      group_.template reference<double>(
          {.inputs = inputs(g), .y = y.data(), .workspace = nullptr, .final_state = nullptr});
    });
    return {agreement("y", o_.y->columns(0, group_.shape.values()), y,
                      2 * execution::epsilon(Dtype::bf16))};
  }
};

template <bool kChannels>
struct GatedDeltaBackward final : GatedDeltaCase<kernels::GatedDeltaBackward, kChannels> {
  using Base = GatedDeltaCase<kernels::GatedDeltaBackward, kChannels>;
  using Base::agreement, Base::Base, Base::group, Base::group_, Base::inputs, Base::matrix,
      Base::o_;
  using typename Base::Group;
  // Operands of products are rounded to bf16, and so are gradients.
  std::vector<Agreement> check(const std::string&) override {
    const Group in = group();
    Group g = in;  // its gradients
    const Values dy = o_.dy->columns(0, group_.shape.values());
    on_host([&] {
      group_.template reference<double>(
          {.inputs = inputs(in),
           .dy = dy.data(),
           .gradients = {.dqkv = matrix(g.qkv.data(), group_.shape.channels()),
                         .dba = matrix(g.ba.data(), group_.shape.gates()),
                         .da = g.a.data(),
                         .da_log = g.a_log.data(),
                         .ddt_bias = g.dt_bias.data()},
           .workspace = nullptr,
           .dfinal_state = nullptr,
           .dinitial_state = nullptr});
    });
    const double each = 4 * execution::epsilon(Dtype::bf16);
    const auto& ours = o_.gradients;
    std::vector<Agreement> all = {
        agreement("dqkv", this->qkv(*ours.dqkv.whole), g.qkv, each),
        agreement("dba", this->ba(*ours.dba.whole), g.ba, each),
        agreement("da_log", this->of_heads(*ours.da_log), g.a_log, each),
        agreement("ddt_bias", this->of_decays(*ours.ddt_bias), g.dt_bias, each)};
    if (kChannels) all.push_back(agreement("da", this->a(ours.da), g.a, each));
    return all;
  }
};

/// Kimi Linear's.
std::vector<Shape> channel_shapes() {
  return {
      Shape{{"B", 1}, {"T", 8192}, {"K", 32}, {"H", 32}, {"N", 128}, {"P", 128}, {"packed", 0}}};
}

std::vector<Shape> shapes() {
  const Shape equal{{"B", 1},   {"T", 8192}, {"K", 16},    {"H", 32},
                    {"N", 128}, {"P", 128},  {"packed", 0}};
  return {equal, equal.with("packed=1")};
}

}  // namespace

std::vector<Entry> gated_delta_entries() {
  return {
      operator_entry<GatedDeltaForward<false>>(
          "gated_delta_forward", "gated delta rule, y (B T, H P) bf16, state in fp32", shapes()),
      operator_entry<GatedDeltaBackward<false>>("gated_delta_backward",
                                                "gradients of gated_delta_forward, states computed "
                                                "again",
                                                shapes()),
      operator_entry<GatedDeltaForward<true>>(
          "channel_delta_forward", "gated_delta_forward with a decay for each column of a head",
          channel_shapes()),
      operator_entry<GatedDeltaBackward<true>>(
          "channel_delta_backward", "gradients of channel_delta_forward", channel_shapes())};
}

}  // namespace stowage::drivers::bench
