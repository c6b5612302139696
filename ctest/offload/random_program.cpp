#include "random_program.hpp"

#include <algorithm>

#include "execution/error.hpp"
#include "mix_into.hpp"

namespace stowage::ctest {
namespace {

constexpr const char* kKinds[] = {"attn", "mamba", "mlp", "moe"};
constexpr const char* kModules[] = {"core_attn", "mamba_ssm", "mlp_act", "moe_act"};

/// Writes what an op writes, from all that it only reads.
void launch_mix(Queue& queue, std::uint64_t salt, const std::vector<Access>& how,
                std::span<const View> views) {
  MixInto mix{};
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (how[i] != Access::read) continue;
    for (std::size_t b = 0; b < views[i].data.size(); ++b) {
      STOWAGE_ASSERT(mix.count < MixInto::kMostSources, "an op reads {} buffers", mix.count + 1);
      mix.sources[mix.count++] = {views[i].as<std::uint32_t>(b), views[i].buffer(b).elements()};
    }
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (how[i] == Access::read) continue;
    mix.update = how[i] == Access::update;
    for (std::size_t b = 0; b < views[i].data.size(); ++b) {
      mix.out = views[i].as<std::uint32_t>(b);
      mix.salt = static_cast<std::uint32_t>(salt + 31 * i + 7 * b);
      parallel_for(queue, views[i].buffer(b).elements(), mix);
    }
  }
}

}  // namespace

RandomProgram::RandomProgram(const RandomShape& shape)
    : program("random", shape.buckets ? &layout : nullptr), shape_(shape), rng_(shape.seed) {
  add_layers();
  program.begin_section("prologue");
  input = program.input("x", Dtype::int32, {shape.width});
  output = program.output("sum", Dtype::int32, {3});
  const Tensor counter = program.scratch("counter", Dtype::int32, {1});
  append("count", Lane::compute, {{counter, Access::write}}, 5);
  append_exchange("w");
  const int n = shape.microbatches;
  record_section("first", 1, 0, n == 1);
  if (n > 2) record_section("body", n - 2, 1, false);
  if (n > 1) record_section("last", 1, 2, true);
  append_exchange("dw");
  program.begin_section("epilogue");
  append("tick", Lane::compute, {{counter, Access::update}}, 6);
  std::vector<Use> uses{{counter, Access::read}};
  for (const Layer& layer : layers_) {
    const std::string name = program.info(layer.weight).name;
    for (const Range range : windows(layer))
      append("state" + name + "/" + std::to_string(range.begin), Lane::compute,
             {{layer.gradient, Access::read}, {layer.state, Access::update, range}},
             layer.seed + 3);
    std::vector<Use> updates{{layer.gradient, Access::read}, {layer.weight, Access::update}};
    // Where nothing reads it any more, its write-back may be carried into the next step.
    if (layer.state && layer.seed % 4 < 2) updates.push_back({layer.state, Access::read});
    append("update" + name, Lane::compute, std::move(updates), layer.seed);
    if (uses.size() < 8) uses.push_back({layer.weight, Access::read});
  }
  uses.push_back({output, Access::write});
  append("sum", Lane::compute, std::move(uses), 77);
  program.finish();
}

std::size_t RandomProgram::launches(const Step& step) const {
  if (step.what == Step::What::mark) return 0;
  if (step.op < 0) return 1;
  std::size_t count = 0;
  for (const Use& use : program.ops()[step.op].uses)
    if (use.access != Access::read) count += program.info(use.tensor).buffers.size();
  return count;
}

void RandomProgram::add_layers() {
  const auto persistent = [&](const char* what, int i, Lifetime lifetime) {
    return one_buffer(what + std::to_string(i), Dtype::int32, {shape_.width}, lifetime);
  };
  for (const Lifetime lifetime : {Lifetime::parameter, Lifetime::gradient}) {
    const char* what = lifetime == Lifetime::parameter ? "w" : "dw";
    layout.open_bucket(what, "dense", Dtype::int32, {},
                       shape_.weights_on_host ? Region::host : Region::persistent);
    for (int i = 0; i < shape_.layers; ++i) layout.add(persistent(what, i, lifetime));
  }
  add_states();
  layout.close();
  for (int i = 0; i < shape_.layers; ++i) {
    Layer layer;
    layer.kind = kKinds[draw(rng_, 0, 3)];
    layer.weight = program.add(persistent("w", i, Lifetime::parameter));
    layer.gradient = program.add(persistent("dw", i, Lifetime::gradient));
    layer.seed = rng_();
    if (shape_.states_on_host)
      layer.state = program.add(persistent("s", i, Lifetime::optimizer_state));
    layers_.push_back(layer);
  }
}

void RandomProgram::add_states() {
  if (!shape_.states_on_host) return;
  layout.open_bucket("s", "dense", Dtype::int32, {},
                     *shape_.states_on_host ? Region::host : Region::persistent);
  for (int i = 0; i < shape_.layers; ++i)
    layout.add(one_buffer("s" + std::to_string(i), Dtype::int32, {shape_.width},
                          Lifetime::optimizer_state));
}

std::vector<Range> RandomProgram::windows(const Layer& layer) {
  constexpr std::int64_t kCut = kAlignment / sizeof(std::int32_t);
  if (!layer.state) return {};
  if (shape_.width <= kCut || layer.seed % 2 == 0) return {{}};
  return {{0, kCut}, {kCut, shape_.width}};
}

Tensor RandomProgram::tensor(const std::string& name, Lifetime lifetime, const std::string& module,
                             Rng& rng) {
  TensorInfo info;
  info.name = name;
  info.lifetime = lifetime;
  info.module = module;
  info.buffers.push_back({"payload", Dtype::int32, {draw(rng, 1, shape_.width)}});
  if (draw(rng, 0, 3) == 0)
    info.buffers.push_back({"scales", Dtype::int32, {draw(rng, 1, 1 + shape_.width / 8)}});
  return program.add(std::move(info));
}

std::vector<Range> RandomProgram::parts(Tensor tensor, Rng& rng) {
  if (!shape_.in_parts) return {{}};
  const TensorInfo& info = program.info(tensor);
  const std::int64_t elements = info.buffers.front().elements();
  const std::int64_t cut = draw(rng, 0, elements - 1);
  if (cut == 0 || draw(rng, 0, 1) == 0) return {{}};
  return {{0, cut}, {cut, elements}};
}

void RandomProgram::append(const std::string& name, Lane lane, std::vector<Use> uses,
                           std::uint64_t salt) {
  Op op;
  op.name = name;
  op.lane = lane;
  std::vector<Access> how;
  for (const Use& use : uses) {
    how.push_back(use.access);
    op.cost.bytes += static_cast<double>(program.info(use.tensor).bytes());
  }
  op.uses = std::move(uses);
  if (lane == Lane::comm)
    op.communication = Communication{"all_reduce", "data", {0, 1}, 1, Dtype::int32, "sum", {}};
  op.launch = [salt, how](Queue& queue, std::span<const View> views) {
    launch_mix(queue, salt, how, views);
  };
  program.append(std::move(op));
}

void RandomProgram::append_exchange(const std::string& bucket) {
  if (!shape_.buckets) return;
  const Tensor whole = program.find(bucket);
  Op op;
  op.name = "exchange/" + bucket;
  op.lane = Lane::comm;
  op.uses = program.uses(whole, {}, Access::update);
  op.cost.bytes = static_cast<double>(program.info(whole).bytes());
  op.communication = Communication{"all_reduce", "data", {0, 1}, 1, Dtype::int32, "sum", {}};
  op.launch = [count = program.info(whole).buffers.front().elements()](Queue& queue, Views views) {
    MixInto mix{};
    mix.update = true;
    mix.salt = 91;
    mix.out = views.front().as<std::uint32_t>();
    parallel_for(queue, count, mix);
  };
  program.append(std::move(op));
}

void RandomProgram::record_section(const char* name, int repeat, int slot, bool last) {
  program.begin_section(name, repeat);
  const auto scope = program.enter("microbatch", -1, slot);
  std::vector<Kept> kept(layers_.size());
  const auto at = [&](std::size_t i) { return std::to_string(slot) + "/" + std::to_string(i); };
  Tensor x = input;
  for (std::size_t i = 0; i < layers_.size(); ++i) x = forward(layers_[i], at(i), slot, x, kept[i]);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    x = backward(layers_[i], at(i), slot, x, kept[i]);
    if (last && shape_.communicates)
      append("all_reduce" + at(i), Lane::comm, {{layers_[i].gradient, Access::update}},
             layers_[i].seed);
  }
}

Tensor RandomProgram::forward(const Layer& layer, const std::string& at, int slot, Tensor x,
                              Kept& kept) {
  Rng rng(layer.seed);
  const auto kind = static_cast<std::size_t>(
      std::find(std::begin(kKinds), std::end(kKinds), layer.kind) - std::begin(kKinds));
  const auto layer_scope = program.enter("layer", static_cast<int>(at.back() - '0'), slot);
  const auto scope = program.enter(layer.kind, -1, slot);
  kept.in = x;
  Tensor last = tensor("normed" + at, Lifetime::saved, "mlp_fc1", rng);
  append("norm" + at, Lane::compute, {{x, Access::read}, {last, Access::write}}, layer.seed + 1);
  kept.saved.push_back(last);
  if (layer.kind == "moe") {
    const auto router = program.enter("moe_router", -1, slot);
    const Tensor routes = tensor("routes" + at, Lifetime::saved, "", rng);
    append("route" + at, Lane::compute, {{last, Access::read}, {routes, Access::write}},
           layer.seed + 2);
    kept.saved.push_back(routes);
  }
  const auto inner = draw(rng, 1, 3);
  for (std::int64_t j = 0; j < inner; ++j) {
    const std::string name = at + "." + std::to_string(j);
    const bool communicates = shape_.communicates && draw(rng, 0, 3) == 0;
    const Tensor y = draw(rng, 0, 2) == 0
                         ? tensor("t" + name, Lifetime::scratch, "", rng)
                         : tensor("y" + name, Lifetime::saved, kModules[kind], rng);
    for (const Range part : parts(y, rng))
      append("inner" + name + "/" + std::to_string(part.begin), Lane::compute,
             {{last, Access::read},
              {kept.saved.back(), Access::read},
              {layer.weight, Access::read},
              {y, Access::write, part}},
             layer.seed + 3 + static_cast<std::uint64_t>(j));
    if (communicates) append("exchange" + name, Lane::comm, {{y, Access::update}}, layer.seed + 9);
    if (program.info(y).lifetime == Lifetime::saved) kept.saved.push_back(y);
    last = y;
  }
  const Tensor out = tensor("out" + at, Lifetime::saved, "mlp_norm", rng);
  append("out" + at, Lane::compute, {{last, Access::read}, {x, Access::read}, {out, Access::write}},
         layer.seed + 20);
  return out;
}

Tensor RandomProgram::backward(const Layer& layer, const std::string& at, int slot, Tensor dy,
                               const Kept& kept) {
  Rng rng(layer.seed + 1);
  const auto layer_scope = program.enter("layer", static_cast<int>(at.back() - '0'), slot, true);
  const auto scope = program.enter(layer.kind, -1, slot, true);
  const Use stored{layer.gradient, slot == 0 ? Access::write : Access::update};
  Tensor d = dy;
  for (std::size_t i = 0; i < kept.saved.size(); ++i) {
    const std::size_t j = shape_.stores_early ? i : kept.saved.size() - 1 - i;
    const Tensor next = tensor("d" + at + "." + std::to_string(j), Lifetime::scratch, "", rng);
    std::vector<Use> reads{
        {d, Access::read}, {kept.saved[j], Access::read}, {layer.weight, Access::read}};
    if (layer.state && layer.seed % 5 == 0) reads.push_back({layer.state, Access::read});
    reads.push_back({next, Access::write});
    append("back" + at + "." + std::to_string(j), Lane::compute, std::move(reads),
           layer.seed + 40 + j);
    d = next;
    if (shape_.stores_early && i == 0)
      append("store" + at, Lane::compute, {{d, Access::read}, stored}, layer.seed + 59);
  }
  const Tensor dx = tensor("dx" + at, Lifetime::scratch, "", rng);
  std::vector<Use> uses{{d, Access::read}, {kept.in, Access::read}, {dx, Access::write}};
  if (!shape_.stores_early) uses.push_back(stored);
  append("back" + at, Lane::compute, std::move(uses), layer.seed + 60);
  return dx;
}

}  // namespace stowage::ctest
