#include "layers/mixers/feed_forward.hpp"

namespace stowage::layers {
namespace {

/// The dense MLP layer.
class Mlp final : public Mixer {
 public:
  explicit Mlp(const MixerPlace& place)
      : width_(place.config.width),
        rows_(place.ranks.shared_group(parallel::Group::tensor)),
        body_(place, place.config.mlp.ffn, "model.ffn_hidden_size", ".mlp", "mlp_act") {}

  const std::vector<Parameter>& parameters() const override { return body_.parameters(); }
  Rounding input_rounding() const override { return body_.input_rounding(); }

  Tensor forward(Recorder& recorder, Tensor x) const override {
    recorder.kept<Input>(*this).x = x;
    const Tensor active = body_.hidden(
        recorder, "",
        rows_.gather_others(recorder, "x", body_.shared_input(recorder, "x", x, rows_)));
    return rows_.reduce_each(
        recorder, "out", "delta", width_,
        [&](const SomeRows& y, const RowBlock& some) { body_.out(recorder, "", active, y, some); });
  }

  /// It sees each row alone.
  Tensor decode(Recorder& recorder, Tensor x) const override { return forward(recorder, x); }

  Tensor backward(Recorder& recorder, Tensor dy_mine) const override {
    const AllRows dy =
        rows_.gather_each(recorder, "dy", body_.shared_gradient(recorder, "dy", dy_mine, rows_));
    const Tensor x =
        rows_.gather(recorder, "x_again",
                     body_.shared_input(recorder, "x_again", recorder.kept<Input>(*this).x, rows_));
    const Tensor dhidden = body_.hidden_gradient(recorder, "", dy, rows_.spare_weights());
    const Tensor dx = recorder.scratch("dx", {recorder.tokens(), width_});
    body_.input_gradient(recorder, "", dhidden, x, dx, false);
    const SharedRows::Summands summands = rows_.send_partials(recorder, "dx_mine", dx);
    body_.weight_gradient(recorder, "", dhidden, x, WeightsPosition::in_place);
    return rows_.sum(recorder, summands);
  }

 private:
  struct Input {
    Tensor x;
  };

  std::int64_t width_;
  SharedRows rows_;
  FeedForward body_;
};

}  // namespace

std::unique_ptr<Mixer> make_mlp(const MixerPlace& place) { return std::make_unique<Mlp>(place); }

}  // namespace stowage::layers
