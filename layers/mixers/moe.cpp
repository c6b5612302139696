#include <optional>

#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"
#include "kernels/moe/permute.hpp"
#include "layers/mixers/experts.hpp"
#include "layers/mixers/feed_forward.hpp"
#include "layers/mixers/latent.hpp"

namespace stowage::layers {
namespace {

/// The products of all experts of a layer as recorded ops.
struct GroupedProduct {
  Parameter weight;  ///< (E, outputs, inputs)

  std::int64_t experts() const { return weight.local(0); }
  std::int64_t outputs() const { return weight.local(1); }
  std::int64_t inputs() const { return weight.local(2); }

  /// GroupedLinearForward and the like. @param rows that there is room for, and are expected
  template <class Op>
  Op product(const Recorder& recorder, std::int64_t rows, std::int64_t routed) const {
    Op op{};
    op.rows = rows;
    op.routed = routed;
    op.experts = experts();
    op.outputs = outputs();
    op.inputs = inputs();
    op.storage = recorder.storage();
    return op;
  }

  void forward(Recorder& recorder, const char* name, std::int64_t routed, Tensor x, Tensor offsets,
               Tensor y) const {
    recorder.compute(name,
                     product<kernels::GroupedLinearForward>(recorder, rows_of(recorder, x), routed),
                     {.x = x, .w = recorder.parameter(weight), .offsets = offsets, .y = y});
  }

  void backward_input(Recorder& recorder, const char* name, std::int64_t routed, Tensor dy,
                      Tensor offsets, Tensor dx) const {
    recorder.compute(
        name, product<kernels::GroupedLinearBackwardInput>(recorder, rows_of(recorder, dy), routed),
        {.dy = dy, .w = recorder.parameter(weight), .offsets = offsets, .dx = dx});
  }

  void backward_weight(Recorder& recorder, const char* name, std::int64_t routed, Tensor dy,
                       Tensor x, Tensor offsets) const {
    auto op = product<kernels::GroupedLinearBackwardWeight>(recorder, rows_of(recorder, x), routed);
    op.accumulate = recorder.batch().accumulate;
    recorder.compute_weights(
        name, op, {.dy = dy, .x = x, .offsets = offsets, .dw = recorder.gradient(weight)});
  }

  static std::int64_t rows_of(const Recorder& recorder, Tensor rows) {
    return recorder.buffer(rows).shape.front();
  }
};

/// True if the ranks that share experts are those that share the products of the shared expert, and
/// rows travel whole, of the same width.
bool share_one_exchange(const ModelConfig& config, const SharedExperts& experts,
                        const parallel::Ranks& ranks) {
  return experts.size() > 1 && !experts.by_slots() && config.moe.latent == 0 &&
         experts.ranks() == ranks.group(parallel::Group::tensor).members();
}

/// Mixture of experts, dropless: every routed row is computed. The router weight is applied with
/// the activation, so the combine is a plain sum over a token's rows.
class Moe final : public Mixer {
 public:
  explicit Moe(const MixerPlace& place)
      : width_(place.config.width),
        expert_width_(place.config.moe.expert_width(width_)),
        ffn_(place.config.moe.ffn),
        topk_(place.config.moe.topk),
        activation_(place.config.mlp.activation),
        experts_(place.config, place.ranks),
        one_exchange_(share_one_exchange(place.config, experts_, place.ranks)),
        router_(place.config, Partition(place.ranks.group(parallel::Group::tensor)), place.prefix,
                place.layer, place.aux_scale),
        fc1_{{place.prefix + ".experts.fc1.weight",
              {place.config.moe.experts, kernels::activation_width(activation_, ffn_),
               expert_width_},
              Init::normal,
              true,
              "expert",
              experts_.partition().cut(0, {place.config.moe.experts}),
              {},
              hidden_projections(activation_, ffn_)}},
        fc2_{{place.prefix + ".experts.fc2.weight",
              {place.config.moe.experts, expert_width_, ffn_},
              Init::residual_normal,
              true,
              "expert",
              experts_.partition().cut(0, {place.config.moe.experts}),
              {},
              {{expert_width_}}}} {
    parameters_ = {fc2_.weight, fc1_.weight};
    if (place.config.moe.latent > 0) {
      latent_.emplace(place);
      for (const Parameter& p : latent_->parameters()) parameters_.push_back(p);
    }
    if (place.config.moe.shared_ffn > 0) {
      shared_.emplace(place, place.config.moe.shared_ffn, "model.moe_shared_expert_hidden_size",
                      ".shared", "shared_expert", place.config.moe.shared_gate);
      if (!one_exchange_)
        shared_rows_ = SharedRows(place.ranks.shared_group(parallel::Group::tensor));
      for (const Parameter& p : shared_->parameters()) parameters_.push_back(p);
    }
    parameters_.push_back(router_.parameter());
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Rounding input_rounding() const override {
    // The router reads the values once more in backward.
    return shared_ && shared_->input_rounding() != Rounding::none ? Rounding::measured
                                                                  : Rounding::none;
  }
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
    kept.rows = latent_ ? latent_->narrow(recorder, x) : x;
    return experts_.size() == 1 ? forward_alone(recorder, kept) : forward_shared(recorder, kept);
  }

  /// It sees each row alone, and has room for all.
  Tensor decode(Recorder& recorder, Tensor x) const override { return forward(recorder, x); }

  Tensor backward(Recorder& recorder, Tensor dy) const override {
    const Saved& kept = recorder.kept<Saved>(*this);
    const Routed& r = kept.routed;
    const std::int64_t rows = experts_.capacity(recorder);
    const Tensor dout = latent_ ? latent_->widen_backward(recorder, dy) : dy;
    const AllRows dy_all = experts_.send_each(recorder, "dy_all", dout, r);
    const Tensor x = experts_.send(recorder, "x_again", kept.rows, r);
    router_.count(recorder, kept.choices);
    SharedGradient shared;
    if (shared_ && experts_.size() > 1) shared = shared_gradient(recorder, kept, x, dy, dy_all);
    const Tensor drows = gather(recorder, "gather_dy", dy_all.all, r);
    const Tensor active = recorder.scratch("act_again", {rows, ffn_});
    const Tensor dhidden = recorder.scratch("dfc1", {rows, fc1_.outputs()});
    const Tensor drow_weight = recorder.scratch("drow_weight", recorder.accumulation(), {rows});
    backward_to_hidden(recorder, kept, drows, dhidden, active, drow_weight);
    const SharedExperts::WeightGradient dweights =
        experts_.weight_gradient(recorder, kept.choices, r, drow_weight);
    fc2_.backward_weight(recorder, "fc2_weight_backward", expected(recorder), drows, active,
                         r.offsets);
    const Tensor dsorted = recorder.scratch("drows", {rows, expert_width_});
    fc1_.backward_input(recorder, "fc1_backward", expected(recorder), dhidden, r.offsets, dsorted);
    const Tensor dx_all = recorder.scratch("dx", {experts_.received(recorder), expert_width_});
    const bool summed_together = shared_ && one_exchange_;
    if (summed_together)
      shared_->input_gradient(recorder, kShared, shared.dhidden, shared.x, dx_all, false);
    const SharedRows::Summands summands =
        send_back(recorder, "dx_mine", "combine_dx", dsorted, r, dx_all, summed_together);
    const Tensor sorted = gather(recorder, "gather_again", x, r);
    fc1_.backward_weight(recorder, "fc1_weight_backward", expected(recorder), dhidden, sorted,
                         r.offsets);
    if (shared_ && experts_.size() == 1) shared = shared_gradient(recorder, kept, x, dy, dy_all);
    if (shared_)
      shared_->weight_gradient(recorder, kShared, shared.dhidden, shared.x, spare_weights());
    Tensor dx = experts_.sum(recorder, summands, r);
    if (latent_) {
      const Tensor drows_mine = dx;
      dx = recorder.scratch("dx_of_latent", {recorder.rows(), width_});
      latent_->narrow_backward(recorder, kept.x, drows_mine, dx);
    }
    if (shared_ && !one_exchange_) add_shared_gradient(recorder, shared, dx);
    router_.backward(recorder, kept.choices, kept.x, experts_.sum_of_pairs(recorder, dweights),
                     dweights.token_row, dx);
    return dx;
  }

 private:
  static constexpr const char* kShared = "shared_";  ///< begins the names of its ops

  struct Saved {
    Tensor x, hidden;
    Tensor rows;  ///< x, or what the experts get of it
    Choices choices;
    Routed routed;
  };
  /// What the shared expert has of its gradients after its second product.
  struct SharedGradient {
    Tensor x;        ///< that its products get
    Tensor dhidden;  ///< of fc1's output
  };

  execution::ScopeGuard enter_router(Recorder& recorder) const {
    return recorder.program().enter("moe_router", -1, recorder.batch().slot);
  }

  /// All experts on one rank: the shared one last, where the others' rows are added to its result.
  Tensor forward_alone(Recorder& recorder, Saved& kept) const {
    {
      const execution::ScopeGuard scope = enter_router(recorder);
      kept.choices = router_.forward(recorder, kept.x);
      kept.routed = experts_.route(recorder, kept.choices, experts_.learn(recorder, kept.choices));
    }
    const Tensor out = experts_forward(recorder, kept, kept.rows);
    const bool onto_shared = shared_ && !latent_;
    const Tensor y = latent_ ? latent_->make_sum(recorder)
                             : recorder.scratch("out", {experts_.received(recorder), width_});
    if (onto_shared) shared_alone(recorder, kept.x, y);
    combine(recorder, "combine", out, kept.routed, y, {}, onto_shared);
    if (!latent_) return y;
    const Tensor delta = latent_->widen(recorder);
    if (shared_) {
      const Tensor mine = recorder.scratch("shared_out", {recorder.rows(), width_});
      shared_alone(recorder, kept.x, mine);
      recorder.add("add_shared", mine, delta);
    }
    return delta;
  }

  void shared_alone(Recorder& recorder, Tensor x, Tensor y) const {
    shared_->out(recorder, kShared, shared_->hidden(recorder, kShared, {x, x}), y);
  }

  /// Of several ranks. The shared expert's products lie beside what is exchanged: they wait neither
  /// for what other ranks' routers choose nor, if it lies on one rank, for rows.
  Tensor forward_shared(Recorder& recorder, Saved& kept) const {
    const Tensor x = kept.x;
    const bool summed_together = shared_ && one_exchange_;
    // Rows that all ranks get need not wait for the router.
    AllRows received;
    if (!experts_.by_slots()) received = experts_.send_each(recorder, "x", kept.rows, {});
    SharedExperts::AllChoices all;
    {
      const execution::ScopeGuard scope = enter_router(recorder);
      kept.choices = router_.forward(recorder, x);
      all = experts_.learn(recorder, kept.choices);
    }
    Tensor active;
    if (shared_) {
      active = shared_->hidden(
          recorder, kShared,
          one_exchange_ ? received
                        : shared_rows_.gather_others(
                              recorder, "shared_x",
                              shared_->shared_input(recorder, "shared_x", x, shared_rows_)));
    }
    const Tensor y = recorder.scratch("out", {experts_.received(recorder), expert_width_});
    if (summed_together) shared_->out(recorder, kShared, active, y);
    {
      const execution::ScopeGuard scope = enter_router(recorder);
      kept.routed = experts_.route(recorder, kept.choices, all);
    }
    if (experts_.by_slots()) received = experts_.send_each(recorder, "x", kept.rows, kept.routed);
    const Tensor out = experts_forward(recorder, kept, received.all);
    const SharedRows::Summands summands =
        send_back(recorder, "delta", "combine", out, kept.routed, y, summed_together);
    if (!shared_ || one_exchange_) return sum(recorder, summands, kept.routed);
    const Tensor mine =
        shared_rows_.reduce_each(recorder, "shared_out", "shared_delta", width_,
                                 [&](const SomeRows& to, const RowBlock& some) {
                                   shared_->out(recorder, kShared, active, to, some);
                                 });
    const Tensor delta = sum(recorder, summands, kept.routed);
    recorder.add("add_shared", mine, delta);
    return delta;
  }

  /// What the experts of all ranks give for this rank's rows, (rows, D).
  Tensor sum(Recorder& recorder, const SharedRows::Summands& summands, const Routed& r) const {
    if (!latent_) return experts_.sum(recorder, summands, r);
    experts_.sum(recorder, summands, r, latent_->make_sum(recorder));
    return latent_->widen(recorder);
  }

  /// @param x, dy_all that the experts get  @param dy of this rank's rows
  SharedGradient shared_gradient(Recorder& recorder, const Saved& kept, Tensor x, Tensor dy,
                                 const AllRows& dy_all) const {
    if (one_exchange_)
      return {x, shared_->hidden_gradient(recorder, kShared, dy_all, spare_weights())};
    const AllRows dy_shared = shared_rows_.gather_each(
        recorder, "shared_dy", shared_->shared_gradient(recorder, "shared_dy", dy, shared_rows_));
    const Tensor x_shared = shared_rows_.gather(
        recorder, "shared_x_again",
        shared_->shared_input(recorder, "shared_x_again", kept.x, shared_rows_));
    return {x_shared,
            shared_->hidden_gradient(recorder, kShared, dy_shared, WeightsPosition::in_place)};
  }

  void add_shared_gradient(Recorder& recorder, const SharedGradient& shared, Tensor dx) const {
    if (shared_rows_.size() == 1) {
      shared_->input_gradient(recorder, kShared, shared.dhidden, shared.x, dx, true);
      return;
    }
    const Tensor dx_shared = recorder.scratch("shared_dx", {recorder.tokens(), width_});
    shared_->input_gradient(recorder, kShared, shared.dhidden, shared.x, dx_shared, false);
    recorder.add("add_shared_dx", shared_rows_.reduce(recorder, "shared_dx_mine", dx_shared), dx);
  }

  /// Those of the shared expert, where neighbouring layers exchange rows.
  WeightsPosition spare_weights() const {
    return one_exchange_ || shared_rows_.size() > 1 ? WeightsPosition::last
                                                    : WeightsPosition::in_place;
  }

  /// Rows that they have if the load is balanced: what costs are counted with.
  std::int64_t expected(const Recorder& recorder) const { return recorder.rows() * topk_; }

  /// Of rows that there is room for. One rank has all rows of its experts, and no more room.
  execution::LeadingRows in_use(const Recorder& recorder, const Routed& r) const {
    if (experts_.size() == 1) return {};
    return {r.offsets, expected(recorder)};
  }

  /// @param x that reached this rank  @return the experts' outputs by row
  Tensor experts_forward(Recorder& recorder, Saved& kept, Tensor x) const {
    const Routed& r = kept.routed;
    const std::int64_t rows = experts_.capacity(recorder);
    const Tensor sorted = gather(recorder, "gather", x, r);
    kept.hidden = recorder.saved("fc1_out", {rows, fc1_.outputs()}, "moe_act", in_use(recorder, r));
    const Tensor active = recorder.scratch("act_out", {rows, ffn_});
    recorder.compute("fc1", fused<kernels::GroupedFc1Forward>(recorder),
                     {.x = sorted,
                      .w1 = recorder.parameter(fc1_.weight),
                      .offsets = r.offsets,
                      .row_weight = r.row_weight,
                      .h = kept.hidden,
                      .a = active});
    const Tensor out = recorder.scratch("rows_out", {rows, expert_width_});
    fc2_.forward(recorder, "fc2", expected(recorder), active, r.offsets, out);
    return out;
  }

  Tensor gather(Recorder& recorder, const char* name, Tensor x, const Routed& r) const {
    const Tensor rows =
        recorder.scratch(std::string(name) + "_rows", {experts_.capacity(recorder), expert_width_});
    recorder.compute(name,
                     kernels::GatherRows{.tokens = experts_.received(recorder),
                                         .topk = topk_,
                                         .rows = experts_.capacity(recorder),
                                         .width = expert_width_,
                                         .routed = expected(recorder),
                                         .storage = recorder.storage()},
                     {.x = x, .token_row = r.received_row, .xs = rows});
    return rows;
  }

  /// @param y of (received, expert width)  @param some of their rows
  void combine(Recorder& recorder, const std::string& name, Tensor rows, const Routed& r,
               const SomeRows& y, const RowBlock& some, bool accumulate) const {
    const std::int64_t tokens = recorder.count(y);
    recorder.compute(
        name + some.suffix,
        kernels::CombineRows{.tokens = tokens,
                             .topk = topk_,
                             .rows = experts_.capacity(recorder),
                             .width = expert_width_,
                             .routed = expected(recorder) * tokens / experts_.received(recorder),
                             .storage = recorder.storage(),
                             .accumulate = accumulate},
        {.ys = rows, .token_row = {r.received_row, some.rows}, .out = y});
  }

  /// Combines the rows of each rank and hands them out.
  SharedRows::Summands send_back(Recorder& recorder, const char* name, const char* combining,
                                 Tensor rows, const Routed& r, Tensor y, bool accumulate) const {
    return experts_.send_back(recorder, name, y, [&](const SomeRows& to, const RowBlock& some) {
      combine(recorder, combining, rows, r, to, some, accumulate);
    });
  }

  /// Through fc2 and the activation, which is applied once more for the gradient of fc2.
  void backward_to_hidden(Recorder& recorder, const Saved& kept, Tensor drows, Tensor dhidden,
                          Tensor active, Tensor drow_weight) const {
    const auto fc2 = fused<kernels::GroupedFc2BackwardInput>(recorder);
    const Routed& r = kept.routed;
    const Tensor workspace = recorder.workspace("fc2_workspace", fc2.workspace_bytes());
    recorder.compute("fc2_backward", fc2,
                     {.dy = drows,
                      .w2 = recorder.parameter(fc2_.weight),
                      .offsets = r.offsets,
                      .row_weight = r.row_weight,
                      .h = kept.hidden,
                      .dh = dhidden,
                      .a = active,
                      .drow_weight = drow_weight,
                      .workspace = workspace});
  }

  /// A product with the activation in its epilogue.
  template <class Op>
  Op fused(const Recorder& recorder) const {
    return {.kind = activation_,
            .rows = experts_.capacity(recorder),
            .routed = expected(recorder),
            .experts = fc1_.experts(),
            .columns = ffn_,
            .width = expert_width_,
            .storage = recorder.storage(),
            .weighted = true};
  }

  std::int64_t width_;
  std::int64_t expert_width_;  ///< of the rows that the experts get: D, or L
  std::int64_t ffn_;
  int topk_;
  kernels::Activation activation_;
  SharedExperts experts_;
  bool one_exchange_;  ///< the shared expert's rows are those that the experts get
  Router router_;
  GroupedProduct fc1_;
  GroupedProduct fc2_;
  std::optional<Latent> latent_;
  std::optional<FeedForward> shared_;
  SharedRows shared_rows_;  ///< of its own exchange
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Mixer> make_moe(const MixerPlace& place) { return std::make_unique<Moe>(place); }

}  // namespace stowage::layers
