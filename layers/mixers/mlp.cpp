#include "layers/mixers/feed_forward.hpp"

namespace stowage::layers {
namespace {

/// The dense MLP layer.
class Mlp final : public Mixer {
 public:
  Mlp(const ModelConfig& config, const parallel::Ranks& ranks, const std::string& prefix)
      : body_(config, config.mlp.ffn, "model.ffn_hidden_size",
              ranks.shared_group(parallel::Group::tensor), prefix + ".mlp", "mlp_act") {}

  const std::vector<Parameter>& parameters() const override { return body_.parameters(); }
  std::string_view scope() const override { return "mlp"; }
  std::string_view norm_module() const override { return "mlp_norm"; }
  std::string_view input_module() const override { return "mlp_fc1"; }

  Tensor forward(Recorder& recorder, Tensor x) const override {
    recorder.kept<Input>(*this).x = x;
    return body_.forward(recorder, "", x);
  }

  Tensor backward(Recorder& recorder, Tensor dy) const override {
    return body_.backward(recorder, "", dy, recorder.kept<Input>(*this).x);
  }

 private:
  struct Input {
    Tensor x;
  };

  FeedForward body_;
};

}  // namespace

std::unique_ptr<Mixer> make_mlp(const ModelConfig& config, const parallel::Ranks& ranks,
                                const std::string& prefix) {
  return std::make_unique<Mlp>(config, ranks, prefix);
}

}  // namespace stowage::layers
