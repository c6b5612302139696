#include "layers/head.hpp"

#include "kernels/cross_entropy/linear_cross_entropy.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "layers/products.hpp"

namespace stowage::layers {

using Views = std::span<const execution::View>;

Head::Head(const ModelConfig& config, const Parameter& embedding)
    : width_(config.width),
      vocabulary_(config.vocabulary),
      epsilon_(config.norm_epsilon),
      tied_(config.tied_embeddings),
      norm_{"final_norm.weight", {config.width}, Init::ones},
      output_{"output.weight", {config.vocabulary, config.width}, Init::normal, true} {
  if (tied_) output_ = embedding;
}

std::vector<Parameter> Head::parameters() const {
  if (tied_) return {norm_};
  return {output_, norm_};
}

Tensor Head::norm(Recorder& recorder, Stream stream) const {
  recorder.set_prefix("head");
  const std::int64_t n = recorder.rows();
  Saved& kept = recorder.kept<Saved>(*this);
  const Tensor normed = recorder.scratch("normed", {n, width_});
  kept.sum = recorder.saved("sum", {n, width_}, "");
  kept.rstd = recorder.saved("rstd", recorder.accumulation(), {n}, "");
  recorder.compute("norm", kernels::add_rmsnorm_forward_cost(n, width_, recorder.storage(), true),
                   {read(stream.x), read(stream.delta), read(recorder.parameter(norm_)),
                    write(kept.sum), write(normed), write(kept.rstd)},
                   [eps = epsilon_](execution::Queue& q, Views v) {
                     kernels::add_rmsnorm_forward(q, v[0], v[1], v[2], v[3], v[4], v[5], eps);
                   });
  return normed;
}

Tensor Head::forward(Recorder& recorder, Stream stream) const {
  const Tensor normed = norm(recorder, stream);
  const std::int64_t n = recorder.tokens();
  Saved& kept = recorder.kept<Saved>(*this);
  const Tensor losses = recorder.scratch("losses", recorder.accumulation(), {n});
  kept.dnormed = recorder.scratch("dnormed", {n, width_});
  const Tensor workspace = recorder.workspace(
      "workspace",
      kernels::linear_cross_entropy_workspace_bytes(n, vocabulary_, width_, recorder.storage()));
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute(
      "loss_and_gradients",
      kernels::linear_cross_entropy_cost(n, vocabulary_, width_, recorder.storage(), accumulate),
      {read(normed), read(recorder.parameter(output_)), read(recorder.batch().targets),
       read(recorder.batch().loss_scale), write(losses), write(kept.dnormed),
       recorder.into(recorder.gradient(output_)), write(workspace)},
      [accumulate](execution::Queue& q, Views v) {
        kernels::linear_cross_entropy(q, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7],
                                      accumulate);
      });
  return losses;
}

void Head::write_logits(Recorder& recorder, Tensor normed) const {
  const Tensor logits = recorder.program().find(kLogits);
  if (logits) Product{output_}.forward(recorder, "logits", normed, logits);
}

Tensor Head::evaluate(Recorder& recorder, Stream stream) const {
  const Tensor normed = norm(recorder, stream);
  write_logits(recorder, normed);
  const std::int64_t n = recorder.tokens();
  const Tensor losses = recorder.scratch("losses", recorder.accumulation(), {n});
  const Tensor workspace = recorder.workspace(
      "workspace",
      kernels::linear_cross_entropy_workspace_bytes(n, vocabulary_, width_, recorder.storage()));
  recorder.compute(
      "loss", kernels::linear_cross_entropy_loss_cost(n, vocabulary_, width_, recorder.storage()),
      {read(normed), read(recorder.parameter(output_)), read(recorder.batch().targets),
       write(losses), write(workspace)},
      [](execution::Queue& q, Views v) {
        kernels::linear_cross_entropy_loss(q, v[0], v[1], v[2], v[3], v[4]);
      });
  return losses;
}

Tensor Head::backward(Recorder& recorder) const {
  recorder.set_prefix("head");
  const std::int64_t n = recorder.rows();
  const Saved& kept = recorder.kept<Saved>(*this);
  const Tensor dsum = recorder.scratch("dsum", {n, width_});
  const Tensor workspace = recorder.workspace(
      "norm_workspace", kernels::rmsnorm_backward_workspace_bytes(n, width_, recorder.storage()));
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute(
      "norm_backward", kernels::rmsnorm_backward_cost(n, width_, recorder.storage(), false),
      {read(kept.dnormed), read(kept.sum), read(recorder.parameter(norm_)), read(kept.rstd),
       write(dsum), recorder.into(recorder.gradient(norm_)), write(workspace)},
      [accumulate](execution::Queue& q, Views v) {
        kernels::rmsnorm_backward(q, v[0], v[1], v[2], v[3], {}, v[4], v[5], v[6], accumulate);
      });
  return dsum;
}

}  // namespace stowage::layers
