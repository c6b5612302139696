#include <array>
#include <cmath>
#include <span>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/recorded.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/moe/router.hpp"
#include "layers/mixers/kinds.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using kernels::Activation;
using Values = std::vector<double>;

constexpr const char* kRouter = "layer.router.weight";
constexpr const char* kFc1 = "layer.experts.fc1.weight";
constexpr const char* kFc2 = "layer.experts.fc2.weight";
constexpr std::array kWeights = {kFc1, kFc2, kRouter};
constexpr std::int64_t kUnits = 4;  ///< of an expert, whose weights' gradients are checked

/// The part of the layer that an operator belongs to.
std::string part_of(const std::string& op) {
  if (op == "select") return "router";
  if (op == "router_gate_backward") return "router_backward";
  const std::size_t weight = op.find("_weight_backward");
  return weight == std::string::npos ? op : op.substr(0, weight) + "_weight";
}

double dot(std::span<const double> a, const double* b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void axpy(double factor, std::span<const double> a, double* sums) {
  for (std::size_t i = 0; i < a.size(); ++i) sums[i] += factor * a[i];
}

void append(Values& to, const Values& from) { to.insert(to.end(), from.begin(), from.end()); }

/// A layer of experts from the router to the combined output and back; squared ReLU, no shared
/// expert. The whole runs from a graph and counts the flops of the experts' six products and of the
/// router's three; the other implementations are its parts.
class MoeLayer final : public Case {
 public:
  MoeLayer(run::Processor& processor, const Shape& shape, std::int64_t seed)
      : n_(shape["T"]),
        d_(shape["D"]),
        f_(shape["F"]),
        accumulate_(shape["accumulate"] != 0),
        tensors_(processor),
        ops_(tensors_.bind(record_moe_layer(shape))) {
    options_.experts = static_cast<int>(shape["E"]);
    options_.topk = static_cast<int>(shape["R"]);
    for (const char* name : {"x", "dy"}) tensors_[name].fill_normal(seed, 0, 1);
    for (const char* name : kWeights) {
      tensors_[name].fill_normal(seed, 0, 1 / std::sqrt(static_cast<double>(d_)));
      if (accumulate_) gradient(name).fill_normal(seed, 0, 1);
    }
    const std::int32_t ends[] = {0, static_cast<std::int32_t>(n_)};
    tensors_["cu_seqlens"].upload(ends);
    operands = {&tensors_["x"], &tensors_["dy"], &tensors_["out"], &tensors_["dx"]};
    for (const char* name : kWeights) operands.push_back(&gradient(name));
    for (const BoundOp& op : ops_) op.enqueue(processor.queue());
    const std::vector<std::int32_t> indices = tensors_.integers("indices");
    experts_ = {indices.front(), indices[static_cast<std::size_t>(options_.topk) - 1]};
    for (std::size_t i = 0; i < kWeights.size(); ++i) {
      if (accumulate_) gradient(kWeights[i]).refill();
      start_[i] = sampled_gradient(kWeights[i]);
      if (!accumulate_) start_[i].assign(start_[i].size(), 0);
    }
    processor.backend().begin_capture(processor.queue());
    for (const BoundOp& op : ops_) op.enqueue(processor.queue());
    whole_ = processor.backend().end_capture(processor.queue());
  }

  Cost cost() const override { return cost_of("ours"); }
  Cost cost_of(const std::string& implementation) const override {
    Cost sum;
    for (const BoundOp& op : ops_)
      if (runs(op, implementation)) sum = sum + op.cost();
    return sum;
  }

  void enqueue(const std::string& implementation, Queue& queue) override {
    if (implementation == "ours") return whole_->launch(queue);
    for (const BoundOp& op : ops_)
      if (runs(op, implementation)) op.enqueue(queue);
  }

  std::vector<Agreement> check(const std::string& implementation) override;

 private:
  /// A token with the experts that the device chose for it, in fp64.
  struct Token {
    Values x, dy, logits, weights;
    std::vector<std::int32_t> experts;
  };
  /// What a token gets of one of its experts, of some of the hidden units.
  struct Hidden {
    Values active, gradient;
    double dweight = 0;
  };

  static bool runs(const BoundOp& op, const std::string& implementation) {
    return implementation == "ours" || implementation == op.name() ||
           implementation == (op.recorded.backward ? "backward" : "forward");
  }
  Operand& gradient(const std::string& weight) { return tensors_["gradient/" + weight]; }

  Token token(std::int64_t index, const Values& router, std::span<const std::int32_t> indices);
  /// @param rows units of w1, and the same of w2, (units, D) both
  Hidden hidden(const Token& one, std::size_t choice, const Values& rows, const Values& columns);
  Values dlogits(const Token& one, const Values& dweights) const;
  Values units(Operand& weight, std::int64_t expert, bool columns) const;
  Values sampled_gradient(const char* weight);
  void check_tokens(std::vector<Agreement>& agreements);
  void check_weights(std::vector<Agreement>& agreements);

  std::int64_t n_, d_, f_;
  bool accumulate_;
  kernels::RouterOptions options_;
  RecordedTensors tensors_;
  std::vector<BoundOp> ops_;
  std::array<std::int32_t, 2> experts_{};        ///< that are checked: some token's
  std::array<Values, kWeights.size()> start_{};  ///< of their gradients
  std::unique_ptr<execution::Graph> whole_;
};

MoeLayer::Token MoeLayer::token(std::int64_t index, const Values& router,
                                std::span<const std::int32_t> indices) {
  const auto topk = static_cast<std::size_t>(options_.topk);
  const auto first = indices.begin() + index * options_.topk;
  Token one{tensors_["x"].rows(index, 1), tensors_["dy"].rows(index, 1), {}, Values(topk), {}};
  one.experts.assign(first, first + options_.topk);
  for (std::int64_t e = 0; e < options_.experts; ++e)
    one.logits.push_back(dot(one.x, router.data() + e * d_));
  kernels::RouterWeights{.tokens = 1, .options = options_, .storage = Dtype::fp64}
      .reference<double>({.logits = one.logits.data(),
                          .indices = one.experts.data(),
                          .weights = one.weights.data()});
  return one;
}

MoeLayer::Hidden MoeLayer::hidden(const Token& one, std::size_t choice, const Values& rows,
                                  const Values& columns) {
  const auto units = static_cast<std::int64_t>(rows.size()) / d_;
  Values h, g;
  for (std::int64_t j = 0; j < units; ++j) {
    h.push_back(dot(one.x, rows.data() + j * d_));
    g.push_back(dot(one.dy, columns.data() + j * d_));
  }
  Hidden made{Values(h.size()), Values(h.size())};
  const double* weight = &one.weights[choice];
  kernels::ActivationForward{Activation::squared_relu, 1, units, Dtype::fp64, true}
      .reference<double>(
          {.x = h.data(), .row_weight = weight, .y = made.active.data(), .valid_rows = nullptr});
  kernels::ActivationBackward{Activation::squared_relu, 1, units, Dtype::fp64, true}
      .reference<double>({.dy = g.data(),
                          .x = h.data(),
                          .row_weight = weight,
                          .dx = made.gradient.data(),
                          .drow_weight = &made.dweight,
                          .valid_rows = nullptr,
                          .amax = nullptr});
  return made;
}

/// @param dweights of the token's choices
Values MoeLayer::dlogits(const Token& one, const Values& dweights) const {
  std::vector<std::int32_t> places, offsets(one.logits.size() + 1);
  for (std::size_t i = 0; i < dweights.size(); ++i) places.push_back(static_cast<std::int32_t>(i));
  const std::int32_t routed = 1;
  Values made(one.logits.size());
  kernels::RouterBackward{.tokens = 1, .options = options_, .starts = 1, .storage = Dtype::fp64}
      .reference<double>({.dweights_rows = dweights.data(),
                          .token_row = places.data(),
                          .logits = one.logits.data(),
                          .indices = one.experts.data(),
                          .weights = one.weights.data(),
                          .offsets = offsets.data(),
                          .cu_seqlens = &routed,
                          .dlogits = made.data()});
  return made;
}

/// y and dx of some tokens, and the gradients of their choices' weights.
void MoeLayer::check_tokens(std::vector<Agreement>& agreements) {
  constexpr std::int64_t kTokens = 4;
  const Values router = tensors_[kRouter].values(), drow_weight = tensors_["drow_weight"].values();
  const std::vector<std::int32_t> indices = tensors_.integers("indices"),
                                  rows = tensors_.integers("token_row");
  Values y, dx, dweights, y_ref, dx_ref, dweights_ref;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    const std::int64_t at = i * (n_ - 1) / (kTokens - 1);
    const Token one = token(at, router, indices);
    Values out(one.x.size()), back(one.x.size()), of_weights;
    for (std::size_t r = 0; r < one.experts.size(); ++r) {
      const Values w1 = tensors_[kFc1].rows(one.experts[r], 1),
                   w2 = tensors_[kFc2].rows(one.experts[r], 1);
      Values columns(w2.size());
      for (std::int64_t j = 0; j < f_; ++j)
        for (std::int64_t k = 0; k < d_; ++k) columns[j * d_ + k] = w2[k * f_ + j];
      const Hidden made = hidden(one, r, w1, columns);
      for (std::int64_t j = 0; j < f_; ++j) {
        axpy(made.active[j], {columns.data() + j * d_, one.x.size()}, out.data());
        axpy(made.gradient[j], {w1.data() + j * d_, one.x.size()}, back.data());
      }
      of_weights.push_back(made.dweight);
      dweights.push_back(drow_weight[rows[at * options_.topk + static_cast<std::int64_t>(r)]]);
    }
    const Values to_logits = dlogits(one, of_weights);
    for (std::int64_t e = 0; e < options_.experts; ++e)
      axpy(to_logits[e], {router.data() + e * d_, one.x.size()}, back.data());
    append(y_ref, out);
    append(dx_ref, back);
    append(dweights_ref, of_weights);
    append(y, tensors_["out"].rows(at, 1));
    append(dx, tensors_["dx"].rows(at, 1));
  }
  // Rounded on the way: h, a, rows, y; dh as well, and dx twice.
  const double eps = execution::epsilon(Dtype::bf16);
  const std::string over = some_of(kTokens, n_, "tokens");
  agreements.push_back({"y", relative_error(y, y_ref), 4 * eps, false, over});
  agreements.push_back({"dx", relative_error(dx, dx_ref), 6 * eps, false, over});
  agreements.push_back({"dweights", relative_error(dweights, dweights_ref), 4 * eps, false, over});
}

/// Some units of an expert: rows of a matrix (F, D), or columns of (D, F), as rows.
Values MoeLayer::units(Operand& weight, std::int64_t expert, bool columns) const {
  const Values all = weight.rows(expert, 1);
  Values some;
  for (std::int64_t i = 0; i < kUnits; ++i) {
    const std::int64_t unit = i * (f_ - 1) / (kUnits - 1);
    for (std::int64_t k = 0; k < d_; ++k)
      some.push_back(all[columns ? k * f_ + unit : unit * d_ + k]);
  }
  return some;
}

/// Of the experts that are checked, (2, D) of the router or (2, units, D).
Values MoeLayer::sampled_gradient(const char* weight) {
  Values all;
  for (const std::int32_t expert : experts_)
    append(all, weight == kRouter ? gradient(weight).rows(expert, 1)
                                  : units(gradient(weight), expert, weight == kFc2));
  return all;
}

/// The weights' gradients, of two experts. That of the router is made of the device's gradients of
/// the choices' weights, of which check_tokens() sees some.
void MoeLayer::check_weights(std::vector<Agreement>& agreements) {
  const Values router = tensors_[kRouter].values(), drow_weight = tensors_["drow_weight"].values();
  const std::vector<std::int32_t> indices = tensors_.integers("indices"),
                                  rows = tensors_.integers("token_row");
  std::array<Values, kWeights.size()> sums;
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].resize(start_[i].size());
  for (std::int64_t s = 0; s < 2; ++s) {
    const Values w1 = units(tensors_[kFc1], experts_[s], false),
                 w2 = units(tensors_[kFc2], experts_[s], true);
    for (std::int64_t pair = 0; pair < n_ * options_.topk; ++pair) {
      if (indices[pair] != experts_[s]) continue;
      const std::int64_t at = pair / options_.topk;
      const Token one = token(at, router, indices);
      const Hidden made = hidden(one, static_cast<std::size_t>(pair % options_.topk), w1, w2);
      for (std::int64_t j = 0; j < kUnits; ++j) {
        const std::int64_t to = (s * kUnits + j) * d_;
        axpy(made.gradient[j], one.x, sums[0].data() + to);
        axpy(made.active[j], one.dy, sums[1].data() + to);
      }
      Values dweights;
      for (std::int64_t r = at * options_.topk; r < (at + 1) * options_.topk; ++r)
        dweights.push_back(drow_weight[rows[r]]);
      axpy(dlogits(one, dweights)[experts_[s]], one.x, sums[2].data() + s * d_);
    }
  }
  // Rounded on the way: h, dh, a. The router's is all in fp32: its logits, its sums.
  const double eps = execution::epsilon(Dtype::bf16);
  const double router_tolerance = tensor_core_tolerance(static_cast<double>(d_)) +
                                  tensor_core_tolerance(static_cast<double>(n_));
  const std::string experts = some_of(2, options_.experts, "experts");
  const std::string over = some_of(kUnits, f_, "hidden units") + " of " + experts;
  const auto error = [&](std::size_t i) {
    Values added = sampled_gradient(kWeights[i]);
    axpy(-1, start_[i], added.data());
    return relative_error(added, sums[i]);
  };
  agreements.push_back({"dw1", error(0), 4 * eps, false, over});
  agreements.push_back({"dw2", error(1), 4 * eps, false, over});
  agreements.push_back({"drouter", error(2), router_tolerance, false, experts});
}

std::vector<Agreement> MoeLayer::check(const std::string& implementation) {
  if (implementation != "ours") return {};  // its parts are checked as operators
  std::vector<Agreement> agreements;
  check_tokens(agreements);
  check_weights(agreements);
  return agreements;
}

}  // namespace

/// Without the counts of rows, which are for the update of the router's biases.
RecordedMixer record_moe_layer(const Shape& shape) {
  layers::ModelConfig model;
  model.pattern = std::string(1, layers::kinds::moe.letter);
  model.width = shape["D"];
  model.moe = {.experts = static_cast<int>(shape["E"]),
               .topk = static_cast<int>(shape["R"]),
               .ffn = shape["F"]};
  RecordedMixer recording(model, 1, shape["T"], shape["accumulate"] != 0);
  std::erase_if(recording.ops, [](const RecordedOp& op) { return op.name == "expert_load"; });
  for (RecordedOp& op : recording.ops) op.name = part_of(op.name);
  return recording;
}

std::unique_ptr<Case> make_moe_layer(run::Processor& processor, const Shape& shape,
                                     std::int64_t seed) {
  return std::make_unique<MoeLayer>(processor, shape, seed);
}

Entry moe_layer_entry() {
  std::vector<Implementation> implementations;
  for (const char* name :
       {"ours", "forward", "backward", "router", "permute_index", "gather", "fc1", "fc2", "combine",
        "gather_dy", "fc2_backward", "fc2_weight", "gather_again", "fc1_weight", "fc1_backward",
        "combine_dx", "router_backward"})
    implementations.push_back({name, "", ""});
  std::vector<Shape> shapes;
  for (const std::int64_t accumulate : {0, 1})
    for (const auto& [t, e, r, d, f] : std::vector<std::array<std::int64_t, 5>>{
             {8192, 128, 6, 2688, 1856}, {16384, 32, 4, 2048, 1024}})
      shapes.push_back(
          {{"T", t}, {"E", e}, {"R", r}, {"D", d}, {"F", f}, {"accumulate", accumulate}});
  return {.name = "moe_layer",
          .help = "experts from the router to the combined output and back, and its parts",
          .shapes = std::move(shapes),
          .implementations = std::move(implementations),
          .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) {
            return make_moe_layer(gpu, shape, seed);
          }};
}

}  // namespace stowage::drivers::bench
