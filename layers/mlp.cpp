#include "layers/feed_forward.hpp"

namespace stowage::layers {
namespace {

/// The dense MLP layer.
class Mlp final : public Mixer {
 public:
  Mlp(const ModelConfig& config, const std::string& prefix)
      : width_(config.width), body_(config, config.mlp.ffn, prefix + ".mlp", "mlp_act") {}

  const std::vector<Parameter>& parameters() const override { return body_.parameters(); }
  std::string_view scope() const override { return "mlp"; }
  std::string_view norm_module() const override { return "mlp_norm"; }
  std::string_view input_module() const override { return "mlp_fc1"; }

  Tensor forward(Recorder& recorder, Tensor x) const override {
    recorder.kept<Input>(*this).x = x;
    return body_.forward(recorder, "", x);
  }

  Tensor backward(Recorder& recorder, Tensor dy) const override {
    const Tensor dx = recorder.scratch("dx", {recorder.tokens(), width_});
    body_.backward(recorder, "", dy, recorder.kept<Input>(*this).x, dx, false);
    return dx;
  }

 private:
  struct Input {
    Tensor x;
  };

  std::int64_t width_;
  FeedForward body_;
};

}  // namespace

std::unique_ptr<Mixer> make_mlp(const ModelConfig& config, const std::string& prefix) {
  return std::make_unique<Mlp>(config, prefix);
}

}  // namespace stowage::layers
