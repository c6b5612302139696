#include <optional>

#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"
#include "kernels/moe/permute.hpp"
#include "layers/mixers/experts.hpp"
#include "layers/mixers/feed_forward.hpp"

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
  Moe(const ModelConfig& config, const parallel::Ranks& ranks, const std::string& prefix,
      double aux_scale)
      : width_(config.width),
        ffn_(config.moe.ffn),
        topk_(config.moe.topk),
        activation_(config.mlp.activation),
        experts_(config, ranks),
        router_(config, Partition(ranks.group(parallel::Group::tensor)), prefix, aux_scale),
        fc1_{{prefix + ".experts.fc1.weight",
              {config.moe.experts, kernels::activation_width(activation_, ffn_), width_},
              Init::normal,
              true,
              "expert",
              experts_.partition().cut(0, {config.moe.experts})}},
        fc2_{{prefix + ".experts.fc2.weight",
              {config.moe.experts, width_, ffn_},
              Init::residual_normal,
              true,
              "expert",
              experts_.partition().cut(0, {config.moe.experts})}} {
    parameters_ = {fc2_.weight, fc1_.weight};
    if (config.moe.shared_ffn > 0) {
      shared_.emplace(config, config.moe.shared_ffn, "model.moe_shared_expert_hidden_size",
                      ranks.shared_group(parallel::Group::tensor), prefix + ".shared",
                      "shared_expert");
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
    // Rows that all ranks get need not wait for the router.
    Tensor received = experts_.by_slots() ? Tensor{} : experts_.send(recorder, "x", x, {});
    {
      const auto scope = recorder.program().enter("moe_router", -1, recorder.batch().slot);
      kept.choices = router_.forward(recorder, x);
      kept.routed = experts_.route(recorder, kept.choices);
    }
    if (experts_.by_slots()) received = experts_.send(recorder, "x", x, kept.routed);
    // Beside the exchange of rows; alone on one rank, it comes last, where its result is added to.
    const bool shared_first = shared_ && experts_.size() > 1;
    const Tensor shared = shared_first ? shared_->forward(recorder, "shared_", x) : Tensor{};
    const Tensor out = experts_forward(recorder, kept, received);
    if (!shared_first) {
      const Tensor y = shared_ ? shared_->forward(recorder, "shared_", x)
                               : recorder.scratch("out", {experts_.received(recorder), width_});
      combine(recorder, "combine", out, kept.routed, y, shared_.has_value());
      return experts_.send_back(recorder, "delta", y, kept.routed);
    }
    const Tensor y = recorder.scratch("out", {experts_.received(recorder), width_});
    combine(recorder, "combine", out, kept.routed, y, false);
    const Tensor delta = experts_.send_back(recorder, "delta", y, kept.routed);
    recorder.add("add_shared", shared, delta);
    return delta;
  }

  Tensor backward(Recorder& recorder, Tensor dy) const override {
    const Saved& kept = recorder.kept<Saved>(*this);
    const Routed& r = kept.routed;
    const std::int64_t rows = experts_.room(recorder);
    const Tensor x = experts_.send(recorder, "x_again", kept.x, r);
    const Tensor dy_all = experts_.send(recorder, "dy_all", dy, r);
    router_.count(recorder, kept.choices);
    const Tensor drows = gather(recorder, "gather_dy", dy_all, r);
    const Tensor active = recorder.scratch("act_again", {rows, ffn_});
    const Tensor dhidden = recorder.scratch("dfc1", {rows, fc1_.outputs()});
    const Tensor drow_weight = recorder.scratch("drow_weight", recorder.accumulation(), {rows});
    backward_to_hidden(recorder, kept, drows, dhidden, active, drow_weight);
    const SharedExperts::WeightGradient dweights =
        experts_.weight_gradient(recorder, kept.choices, r, drow_weight);
    fc2_.backward_weight(recorder, "fc2_weight_backward", expected(recorder), drows, active,
                         r.offsets);
    const Tensor dsorted = recorder.scratch("drows", {rows, width_});
    fc1_.backward_input(recorder, "fc1_backward", expected(recorder), dhidden, r.offsets, dsorted);
    const Tensor dx_all = recorder.scratch("dx", {experts_.received(recorder), width_});
    combine(recorder, "combine_dx", dsorted, r, dx_all, false);
    const Tensor dx = experts_.send_back(recorder, "dx_mine", dx_all, r);
    const Tensor sorted = gather(recorder, "gather_again", x, r);
    fc1_.backward_weight(recorder, "fc1_weight_backward", expected(recorder), dhidden, sorted,
                         r.offsets);
    if (shared_) shared_->backward(recorder, "shared_", dy, kept.x, dx);
    router_.backward(recorder, kept.choices, kept.x, dweights.values, dweights.token_row, dx);
    return dx;
  }

 private:
  struct Saved {
    Tensor x, hidden;
    Choices choices;
    Routed routed;
  };

  /// Rows that they have if the load is balanced: what costs are counted with.
  std::int64_t expected(const Recorder& recorder) const { return recorder.rows() * topk_; }

  /// @param x that reached this rank  @return the experts' outputs by row
  Tensor experts_forward(Recorder& recorder, Saved& kept, Tensor x) const {
    const Routed& r = kept.routed;
    const std::int64_t rows = experts_.room(recorder);
    const Tensor sorted = gather(recorder, "gather", x, r);
    kept.hidden = recorder.saved("fc1_out", {rows, fc1_.outputs()}, "moe_act");
    const Tensor active = recorder.scratch("act_out", {rows, ffn_});
    recorder.compute(
        "fc1",
        kernels::grouped_fc1_forward_cost(activation_, expected(recorder), fc1_.experts(), ffn_,
                                          width_, recorder.storage()),
        {read(sorted), read(recorder.parameter(fc1_.weight)), read(r.offsets), read(r.row_weight),
         write(kept.hidden), write(active)},
        [kind = activation_](execution::Queue& q, Views v) {
          kernels::grouped_fc1_forward(q, kind, v[0], v[1], v[2], v[3], v[4], v[5]);
        });
    const Tensor out = recorder.scratch("rows_out", {rows, width_});
    fc2_.forward(recorder, "fc2", expected(recorder), active, r.offsets, out);
    return out;
  }

  Tensor gather(Recorder& recorder, const char* name, Tensor x, const Routed& r) const {
    const Tensor rows =
        recorder.scratch(std::string(name) + "_rows", {experts_.room(recorder), width_});
    recorder.compute(
        name,
        kernels::gather_rows_cost(experts_.received(recorder), topk_, expected(recorder), width_,
                                  recorder.storage()),
        {read(x), read(r.received_row), write(rows)},
        [](execution::Queue& q, Views v) { kernels::gather_rows(q, v[0], v[1], v[2]); });
    return rows;
  }

  void combine(Recorder& recorder, const char* name, Tensor rows, const Routed& r, Tensor y,
               bool accumulate) const {
    recorder.compute(
        name,
        kernels::combine_rows_cost(experts_.received(recorder), topk_, expected(recorder), width_,
                                   recorder.storage(), accumulate),
        {read(rows), read(r.received_row), accumulate ? update(y) : write(y)},
        [accumulate](execution::Queue& q, Views v) {
          kernels::combine_rows(q, v[0], v[1], v[2], accumulate);
        });
  }

  /// Through fc2 and the activation, which is applied once more for the gradient of fc2.
  void backward_to_hidden(Recorder& recorder, const Saved& kept, Tensor drows, Tensor dhidden,
                          Tensor active, Tensor drow_weight) const {
    const std::int64_t rows = experts_.room(recorder);
    const Routed& r = kept.routed;
    const Tensor workspace = recorder.workspace(
        "fc2_workspace",
        kernels::grouped_fc2_backward_input_workspace_bytes(rows, ffn_, recorder.storage()));
    recorder.compute(
        "fc2_backward",
        kernels::grouped_fc2_backward_input_cost(activation_, expected(recorder), fc2_.experts(),
                                                 ffn_, width_, recorder.storage()),
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
  int topk_;
  kernels::Activation activation_;
  SharedExperts experts_;
  Router router_;
  GroupedProduct fc1_;
  GroupedProduct fc2_;
  std::optional<FeedForward> shared_;
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Mixer> make_moe(const ModelConfig& config, const parallel::Ranks& ranks,
                                const std::string& prefix, double aux_scale) {
  return std::make_unique<Moe>(config, ranks, prefix, aux_scale);
}

}  // namespace stowage::layers
