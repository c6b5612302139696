#include <optional>

#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"
#include "kernels/moe/permute.hpp"
#include "layers/feed_forward.hpp"
#include "layers/router.hpp"

namespace stowage::layers {
namespace {

using Views = std::span<const execution::View>;

/// The products of all experts of a layer as recorded ops.
struct GroupedProduct {
  Parameter weight;  ///< (E, outputs, inputs)

  std::int64_t experts() const { return weight.local(0); }
  std::int64_t outputs() const { return weight.local(1); }
  std::int64_t inputs() const { return weight.local(2); }

  void forward(Recorder& recorder, const char* name, std::int64_t rows, Tensor x, Tensor offsets,
               Tensor y) const {
    recorder.compute(name,
                     kernels::grouped_linear_forward_cost(rows, experts(), outputs(), inputs(),
                                                          recorder.storage()),
                     {read(x), read(recorder.parameter(weight)), read(offsets), write(y)},
                     [](execution::Queue& q, Views v) {
                       kernels::grouped_linear_forward(q, v[0], v[1], v[2], v[3]);
                     });
  }

  void backward_input(Recorder& recorder, const char* name, std::int64_t rows, Tensor dy,
                      Tensor offsets, Tensor dx) const {
    recorder.compute(name,
                     kernels::grouped_linear_backward_input_cost(
                         rows, experts(), outputs(), inputs(), recorder.storage(), false),
                     {read(dy), read(recorder.parameter(weight)), read(offsets), write(dx)},
                     [](execution::Queue& q, Views v) {
                       kernels::grouped_linear_backward_input(q, v[0], v[1], v[2], v[3]);
                     });
  }

  void backward_weight(Recorder& recorder, const char* name, std::int64_t rows, Tensor dy, Tensor x,
                       Tensor offsets) const {
    const bool accumulate = recorder.batch().accumulate;
    recorder.compute_weights(
        name,
        kernels::grouped_linear_backward_weight_cost(rows, experts(), outputs(), inputs(),
                                                     recorder.storage(), accumulate),
        {read(dy), read(x), read(offsets), recorder.into(recorder.gradient(weight))},
        [accumulate](execution::Queue& q, Views v) {
          kernels::grouped_linear_backward_weight(q, v[0], v[1], v[2], v[3], accumulate);
        });
  }
};

/// Mixture of experts, dropless: every routed row is computed. The router weight is applied with
/// the activation, so the combine is a plain sum over a token's rows.
class Moe final : public Mixer {
 public:
  Moe(const ModelConfig& config, const std::string& prefix, double aux_scale)
      : width_(config.width),
        ffn_(config.moe.ffn),
        activation_(config.mlp.activation),
        router_(config, prefix, aux_scale),
        fc1_{{prefix + ".experts.fc1.weight",
              {config.moe.experts, kernels::activation_width(activation_, ffn_), width_},
              Init::normal,
              true,
              "expert"}},
        fc2_{{prefix + ".experts.fc2.weight",
              {config.moe.experts, width_, ffn_},
              Init::residual_normal,
              true,
              "expert"}} {
    parameters_ = {fc2_.weight, fc1_.weight};
    if (config.moe.shared_ffn > 0) {
      shared_.emplace(config, config.moe.shared_ffn, prefix + ".shared", "shared_expert");
      for (const Parameter& p : shared_->parameters()) parameters_.push_back(p);
    }
    parameters_.push_back(router_.parameter());
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  std::string_view scope() const override { return "moe"; }
  std::string_view norm_module() const override { return "mlp_norm"; }
  std::string_view input_module() const override { return "expert_fc1"; }
  std::vector<execution::TensorInfo> states(Precision precision) const override {
    return router_.states(precision);
  }
  std::vector<Tensor> step_counts(Recorder& recorder) const override {
    return {router_.load(recorder)};
  }
  std::int64_t step_count_elements() const override { return router_.options().experts; }
  void end_of_step(Recorder& recorder, Tensor step_ok) const override {
    router_.update_bias(recorder, step_ok);
  }

  Tensor forward(Recorder& recorder, Tensor x) const override {
    Saved& kept = recorder.kept<Saved>(*this);
    kept.x = x;
    kept.routing = router_.forward(recorder, x);
    const Routing& r = kept.routing;
    const std::int64_t rows = row_count(recorder);
    const Tensor sorted = gather(recorder, "gather", x, r);
    kept.hidden = recorder.saved("fc1_out", {rows, fc1_.outputs()}, "moe_act");
    const Tensor active = recorder.scratch("act_out", {rows, ffn_});
    recorder.compute("fc1",
                     kernels::grouped_fc1_forward_cost(activation_, rows, fc1_.experts(), ffn_,
                                                       width_, recorder.storage()),
                     {read(sorted), read(recorder.parameter(fc1_.weight)), read(r.offsets),
                      read(r.row_weight), write(kept.hidden), write(active)},
                     [kind = activation_](execution::Queue& q, Views v) {
                       kernels::grouped_fc1_forward(q, kind, v[0], v[1], v[2], v[3], v[4], v[5]);
                     });
    const Tensor out = recorder.scratch("rows_out", {rows, width_});
    fc2_.forward(recorder, "fc2", rows, active, r.offsets, out);
    const Tensor y = shared_ ? shared_->forward(recorder, "shared_", x)
                             : recorder.scratch("out", {recorder.tokens(), width_});
    combine(recorder, "combine", out, r, y, shared_.has_value());
    return y;
  }

  Tensor backward(Recorder& recorder, Tensor dy) const override {
    const Saved& kept = recorder.kept<Saved>(*this);
    const Routing& r = kept.routing;
    const std::int64_t rows = row_count(recorder);
    router_.count(recorder, r);
    const Tensor drows = gather(recorder, "gather_dy", dy, r);
    const Tensor active = recorder.scratch("act_again", {rows, ffn_});
    const Tensor dhidden = recorder.scratch("dfc1", {rows, fc1_.outputs()});
    const Tensor drow_weight = recorder.scratch("drow_weight", recorder.accumulation(), {rows});
    backward_to_hidden(recorder, kept, drows, dhidden, active, drow_weight);
    fc2_.backward_weight(recorder, "fc2_weight_backward", rows, drows, active, r.offsets);
    const Tensor sorted = gather(recorder, "gather_again", kept.x, r);
    fc1_.backward_weight(recorder, "fc1_weight_backward", rows, dhidden, sorted, r.offsets);
    const Tensor dsorted = recorder.scratch("drows", {rows, width_});
    fc1_.backward_input(recorder, "fc1_backward", rows, dhidden, r.offsets, dsorted);
    const Tensor dx = recorder.scratch("dx", {recorder.tokens(), width_});
    combine(recorder, "combine_dx", dsorted, r, dx, false);
    if (shared_) shared_->backward(recorder, "shared_", dy, kept.x, dx, true);
    router_.backward(recorder, r, kept.x, drow_weight, dx);
    return dx;
  }

 private:
  struct Saved {
    Tensor x, hidden;
    Routing routing;
  };

  std::int64_t row_count(const Recorder& recorder) const {
    return recorder.tokens() * router_.options().topk;
  }

  Tensor gather(Recorder& recorder, const char* name, Tensor x, const Routing& r) const {
    const Tensor rows =
        recorder.scratch(std::string(name) + "_rows", {row_count(recorder), width_});
    recorder.compute(name,
                     kernels::gather_rows_cost(recorder.tokens(), router_.options().topk, width_,
                                               recorder.storage()),
                     {read(x), read(r.token_row), write(rows)}, [](execution::Queue& q, Views v) {
                       kernels::gather_rows(q, v[0], v[1], v[2]);
                     });
    return rows;
  }

  void combine(Recorder& recorder, const char* name, Tensor rows, const Routing& r, Tensor y,
               bool accumulate) const {
    recorder.compute(name,
                     kernels::combine_rows_cost(recorder.tokens(), router_.options().topk, width_,
                                                recorder.storage(), accumulate),
                     {read(rows), read(r.token_row), accumulate ? update(y) : write(y)},
                     [accumulate](execution::Queue& q, Views v) {
                       kernels::combine_rows(q, v[0], v[1], v[2], accumulate);
                     });
  }

  /// Through fc2 and the activation, which is applied once more for the gradient of fc2.
  void backward_to_hidden(Recorder& recorder, const Saved& kept, Tensor drows, Tensor dhidden,
                          Tensor active, Tensor drow_weight) const {
    const std::int64_t rows = row_count(recorder);
    const Routing& r = kept.routing;
    const Tensor workspace = recorder.workspace(
        "fc2_workspace",
        kernels::grouped_fc2_backward_input_workspace_bytes(rows, ffn_, recorder.storage()));
    recorder.compute(
        "fc2_backward",
        kernels::grouped_fc2_backward_input_cost(activation_, rows, fc2_.experts(), ffn_, width_,
                                                 recorder.storage()),
        {read(drows), read(recorder.parameter(fc2_.weight)), read(r.offsets), read(r.row_weight),
         read(kept.hidden), write(dhidden), write(active), write(drow_weight), write(workspace)},
        [kind = activation_](execution::Queue& q, Views v) {
          kernels::grouped_fc2_backward_input(q, kind,
                                              {.dy = v[0],
                                               .w2 = v[1],
                                               .offsets = v[2],
                                               .row_weight = v[3],
                                               .h = v[4],
                                               .dh = v[5],
                                               .a = v[6],
                                               .drow_weight = v[7],
                                               .workspace = v[8]});
        });
  }

  std::int64_t width_;
  std::int64_t ffn_;
  kernels::Activation activation_;
  Router router_;
  GroupedProduct fc1_;
  GroupedProduct fc2_;
  std::optional<FeedForward> shared_;
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Mixer> make_moe(const ModelConfig& config, const std::string& prefix,
                                double aux_scale) {
  return std::make_unique<Moe>(config, prefix, aux_scale);
}

}  // namespace stowage::layers
