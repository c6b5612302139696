#include "layers/recording/roundings.hpp"

#include <map>

namespace stowage::layers {

namespace {

/// Of the tensors of a recording.
struct Roundings {
  std::map<std::pair<int, bool>, Tensor> magnitudes;
  std::map<std::pair<int, bool>, std::string> modules;
  std::map<int, Tensor> scales;
  std::map<int, SharedRounding> shared;
};

Roundings& roundings(Recorder& recorder) {
  return recorder.kept_of_step<Roundings>(recorder.program());
}

}  // namespace

Tensor measure(Recorder& recorder, Tensor x, bool activated) {
  const Tensor amax = recorder.program().scratch(
      recorder.program().info(x).name + (activated ? "_activated_amax" : "_amax"),
      recorder.accumulation(), {1});
  return roundings(recorder).magnitudes[{x.id, activated}] = amax;
}

Tensor magnitude(Recorder& recorder, Tensor x, bool activated) {
  const auto& all = roundings(recorder).magnitudes;
  const auto found = all.find({x.id, activated});
  return found == all.end() ? Tensor{} : found->second;
}

Tensor saved(Recorder& recorder, Rounding rounding, std::string_view name,
             std::vector<std::int64_t> shape, std::string_view module) {
  if (rounding != Rounding::saved) return recorder.saved(name, std::move(shape), module);
  const Tensor x = recorder.scratch(name, std::move(shape));
  roundings(recorder).modules[{x.id, false}] = module;
  return x;
}

void save_activated(Recorder& recorder, Tensor x, std::string_view module) {
  roundings(recorder).modules[{x.id, true}] = module;
}

std::string_view module_of_payload(Recorder& recorder, Tensor x, bool activated) {
  const auto& all = roundings(recorder).modules;
  const auto found = all.find({x.id, activated});
  return found == all.end() ? std::string_view() : found->second;
}

bool is_payload(Recorder& recorder, Tensor x) {
  const execution::Dtype dtype = recorder.buffer(x).dtype;
  return dtype == execution::Dtype::e4m3 || dtype == execution::Dtype::e5m2;
}

Tensor scale_of(Recorder& recorder, Tensor payload) {
  const auto& all = roundings(recorder).scales;
  const auto found = all.find(payload.id);
  return found == all.end() ? payload : found->second;
}

void share_scale(Recorder& recorder, Tensor part, Tensor all) {
  roundings(recorder).scales[all.id] = part;
}

SharedRounding& shared_rounding(Recorder& recorder, Tensor x) {
  return roundings(recorder).shared[x.id];
}

}  // namespace stowage::layers
