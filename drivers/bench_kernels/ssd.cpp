#include "kernels/ssd/ssd.hpp"

#include <cmath>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using Values = std::vector<double>;

/// A scan of B documents of T tokens. Compared with the reference is group 0: groups of heads share
/// nothing.
template <class Op>
class SsdCase : public OperatorCase<Op> {
 public:
  SsdCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase<Op>(gpu, sizes(shape), seed), group_(this->op_) {
    const auto& in = this->o_.inputs;
    in.a_log->fill_normal(seed, 1.4, 0.7);
    in.d->fill_normal(seed, 1, 0.1);
    in.dt_bias->fill_normal(seed, -4.6, 0.5);  // steps near 0.01
    for (std::int64_t t = 0; t < group_.tokens; ++t)
      documents_.push_back(static_cast<std::int32_t>(t / shape["T"]));
    in.seq_idx->upload(documents_.data());
    group_.shape.heads /= group_.shape.groups;
    group_.shape.groups = 1;
    group_.storage = Dtype::fp64;
  }

 protected:
  static Op sizes(const Shape& shape) {
    Op op{};
    op.shape = {
        .heads = shape["H"], .head_dim = shape["P"], .groups = shape["G"], .state = shape["N"]};
    op.tokens = shape["B"] * shape["T"];
    op.storage = Dtype::bf16;
    return op;
  }

  /// X, B or C of the group, of [X | B | C] or its gradient.
  Values x(const Operand& xbc) const { return xbc.columns(0, group_.shape.inner()); }
  Values b(const Operand& xbc) const {
    return xbc.columns(this->op_.shape.inner(), group_.shape.state);
  }
  Values c(const Operand& xbc) const {
    return xbc.columns(this->op_.shape.inner() + this->op_.shape.shared(), group_.shape.state);
  }
  Values heads(const Operand& of_each) const {
    return of_each.shape().size() == 1 ? of_each.rows(0, group_.shape.heads)
                                       : of_each.columns(0, group_.shape.heads);
  }
  template <class T>
  kernels::Matrix<T> matrix(T* data, std::int64_t columns) const {
    return {data, group_.tokens, columns, columns};
  }

  /// The inputs of the group in fp64, or room for their gradients.
  struct Group {
    Values xbc, dt, a_log, d, dt_bias;
  };
  Group group() const {
    const auto& in = this->o_.inputs;
    const Values parts[] = {x(*in.xbc.whole), b(*in.xbc.whole), c(*in.xbc.whole)};
    Values xbc;
    for (std::int64_t t = 0; t < group_.tokens; ++t)
      for (const Values& part : parts) {
        const std::int64_t width = std::ssize(part) / group_.tokens;
        xbc.insert(xbc.end(), part.begin() + t * width, part.begin() + (t + 1) * width);
      }
    return {xbc, heads(*in.dt.whole), heads(*in.a_log), heads(*in.d), heads(*in.dt_bias)};
  }
  kernels::SsdInputs<kernels::Pointers<double>> inputs(const Group& g) const {
    return {.xbc = matrix(g.xbc.data(), group_.shape.channels()),
            .dt = matrix(g.dt.data(), group_.shape.heads),
            .a_log = g.a_log.data(),
            .d = g.d.data(),
            .dt_bias = g.dt_bias.data(),
            .seq_idx = documents_.data(),
            .initial_state = nullptr};
  }
  Agreement agreement(const char* name, const Values& ours, const Values& reference,
                      double bound) const {
    return {name, relative_error(ours, reference), bound, false,
            some_of(group_.shape.heads, this->op_.shape.heads, "heads")};
  }

  Op group_;
  std::vector<std::int32_t> documents_;
};

struct SsdForward final : SsdCase<kernels::SsdForward> {
  using SsdCase::SsdCase;
  // Operands of products are rounded to bf16 twice on the way to y, and y once.
  std::vector<Agreement> check(const std::string&) override {
    const Group g = group();
    Values y(static_cast<std::size_t>(group_.tokens * group_.shape.inner()));
    Values workspace(group_.workspace_bytes() / sizeof(double) + 1);
    on_host([&] {
      group_.reference<double>({.inputs = inputs(g),
                                .y = y.data(),
                                .workspace = workspace.data(),
                                .final_state = nullptr,
                                .total_decay = nullptr});
    });
    return {agreement("y", x(*o_.y), y, 3 * execution::epsilon(Dtype::bf16))};
  }
};

struct SsdBackward final : SsdCase<kernels::SsdBackward> {
  using SsdCase::SsdCase;
  // As forward, with one more product on each way.
  std::vector<Agreement> check(const std::string&) override {
    const Group in = group();
    Group g = in;  // its gradients
    const Values dy = x(*o_.dy);
    Values workspace(group_.workspace_bytes() / sizeof(double) + 1);
    on_host([&] {
      group_.reference<double>({.inputs = inputs(in),
                                .dy = dy.data(),
                                .gradients = {.dxbc = matrix(g.xbc.data(), group_.shape.channels()),
                                              .ddt = matrix(g.dt.data(), group_.shape.heads),
                                              .da_log = g.a_log.data(),
                                              .dd = g.d.data(),
                                              .ddt_bias = g.dt_bias.data()},
                                .workspace = workspace.data(),
                                .dfinal_state = nullptr,
                                .dinitial_state = nullptr});
    });
    const auto part = [&](std::int64_t first, std::int64_t count) {
      Values some;
      for (std::int64_t t = 0; t < group_.tokens; ++t) {
        const auto from = g.xbc.begin() + t * group_.shape.channels() + first;
        some.insert(some.end(), from, from + count);
      }
      return some;
    };
    // Sums over tokens of values with such an error: of neighbours, some 64, it is common, from one
    // rounded state; else independent, and falls as the square root. dd needs no rounded value.
    const double each = 4 * execution::epsilon(Dtype::bf16);
    const double summed = each / std::sqrt(std::max(1.0, static_cast<double>(op_.tokens) / 64));
    const Operand& dxbc = *o_.gradients.dxbc.whole;
    const std::int64_t inner = group_.shape.inner(), state = group_.shape.state;
    return {agreement("dx", x(dxbc), part(0, inner), each),
            agreement("db", b(dxbc), part(inner, state), each),
            agreement("dc", c(dxbc), part(inner + state, state), each),
            agreement("ddt", heads(*o_.gradients.ddt.whole), g.dt, each),
            agreement("da_log", heads(*o_.gradients.da_log), g.a_log, summed),
            agreement("dd", heads(*o_.gradients.dd), g.d,
                      tree_tolerance(static_cast<double>(op_.tokens * op_.shape.head_dim))),
            agreement("ddt_bias", heads(*o_.gradients.ddt_bias), g.dt_bias, summed / 1.6)};
  }
};

std::vector<Shape> shapes() {
  return {Shape{{"B", 2}, {"T", 8192}, {"H", 64}, {"P", 64}, {"G", 8}, {"N", 128}}};
}

}  // namespace

Entry ssd_forward_entry() {
  return operator_entry<SsdForward>("ssd_forward", "Mamba-2 scan, y (B T, H P) bf16, state in fp32",
                                    shapes());
}

Entry ssd_backward_entry() {
  return operator_entry<SsdBackward>("ssd_backward",
                                     "gradients of ssd_forward, states computed again", shapes());
}

}  // namespace stowage::drivers::bench
