#include <map>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/recorded.hpp"
#include "layers/mixers/kinds.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using Form = layers::ModelConfig::Mamba::Form;
using Values = std::vector<double>;

layers::ModelConfig model(const Shape& shape, Form form = Form::separate) {
  layers::ModelConfig model;
  model.pattern = std::string(1, layers::kinds::mamba.letter);
  model.mamba = {.heads = static_cast<int>(shape["H"]),
                 .head_dim = static_cast<int>(shape["P"]),
                 .groups = static_cast<int>(shape["G"]),
                 .state = static_cast<int>(shape["N"]),
                 .form = form};
  model.width = model.mamba.inner();
  return model;
}

std::string parameter(const std::string& name) { return "layer.mamba." + name; }
void append(Values& to, const Values& from) { to.insert(to.end(), from.begin(), from.end()); }

/// What the first group has of rows [z | x | B | C | dt].
struct Group {
  explicit Group(const layers::ModelConfig::Mamba& m)
      : width(m.inner() / m.groups), inner(m.inner()) {
    const std::int64_t shared = std::int64_t{m.groups} * m.state;
    blocks = {{"z", 0, width},
              {"x", inner, width},
              {"B", 2 * inner, m.state},
              {"C", 2 * inner + shared, m.state},
              {"dt", inner + m.conv_channels(), m.heads / m.groups}};
  }

  /// Its columns of all rows, dense.
  Values columns(const Operand& rows) const {
    Values all;
    std::vector<Values> parts;
    for (const Block& block : blocks) parts.push_back(rows.columns(block.first, block.count));
    for (std::int64_t row = 0; row < rows.shape().front(); ++row)
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto first = parts[i].begin() + row * blocks[i].count;
        all.insert(all.end(), first, first + blocks[i].count);
      }
    return all;
  }
  /// Its rows of what the convolution has for each channel.
  Values channels(const Operand& all) const {
    Values some;
    for (const Block& block : {blocks[1], blocks[2], blocks[3]})
      append(some, all.rows(block.first - inner, block.count));
    return some;
  }

  struct Block {
    std::string name;
    std::int64_t first, count;
  };
  std::int64_t width, inner;
  std::vector<Block> blocks;
};

/// A Mamba-2 mixer between its two projections, forward and, unless left out, then backward:
/// convolution, scan, gated norm. "fused": convolution and scan as one operator, which makes the
/// convolution again in backward; "fused_forward": only there, with its output stored. All count
/// what the separate operators need. B documents of T tokens.
class Mixer final : public Case {
 public:
  Mixer(run::Processor& processor, const Shape& shape, std::int64_t seed, bool backward)
      : shape_(shape), backward_(backward), tensors_(processor) {
    for (const auto& [name, form] : {std::pair{"ours", Form::separate},
                                     {"fused_forward", Form::fused_forward},
                                     {"fused", Form::fused}}) {
      RecordedMixer recording = record_mixer(shape, form, backward);
      if (form == Form::separate) cost_ = recording.cost();
      forms_.emplace(name, tensors_.bind(std::move(recording)));
    }
    operands = tensors_.all();
    tensors_["in_proj_out"].fill_normal(seed, 0, 1);
    if (backward) tensors_["dgated"].fill_normal(seed, 0, 1);
    tensors_[parameter("conv1d.weight")].fill_normal(seed, 0, 0.3);
    tensors_[parameter("conv1d.bias")].fill_normal(seed, 0, 0.3);
    tensors_[parameter("A_log")].fill_normal(seed, 1.4, 0.7);
    tensors_[parameter("D")].fill_normal(seed, 1, 0.1);
    tensors_[parameter("dt_bias")].fill_normal(seed, -4.6, 0.5);  // steps near 0.01
    tensors_[parameter("norm.weight")].fill_normal(seed, 1, 0.1);
    for (std::int64_t t = 0; t < shape["B"] * shape["T"]; ++t)
      documents_.push_back(static_cast<std::int32_t>(t / shape["T"]));
    tensors_["seq_idx"].upload(documents_.data());
  }

  execution::Cost cost() const override { return cost_; }
  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    for (const BoundOp& op : forms_.at(implementation)) op.enqueue(queue);
  }
  std::vector<Agreement> check(const std::string&) override;

 private:
  void run_reference(run::Processor& host, RecordedTensors& reference, const Shape& one);

  Shape shape_;
  bool backward_;
  RecordedTensors tensors_;
  execution::Cost cost_;
  std::map<std::string, std::vector<BoundOp>> forms_;
  std::vector<std::int32_t> documents_;
};

/// The first group, which shares nothing with others, as a mixer of its own: by the separate
/// operators in fp64 on the host.
void Mixer::run_reference(run::Processor& host, RecordedTensors& reference, const Shape& one) {
  const std::vector<BoundOp> ops =
      reference.bind(record_mixer(one, Form::separate, backward_, Dtype::fp64));
  const Group group(model(shape_).mamba);
  const auto upload = [&](const std::string& name, const Values& values) {
    reference[name].upload(values.data());
  };
  reference["seq_idx"].upload(documents_.data());
  upload("in_proj_out", group.columns(tensors_["in_proj_out"]));
  if (backward_) upload("dgated", tensors_["dgated"].columns(0, group.width));
  for (const char* name : {"A_log", "D", "dt_bias", "norm.weight"}) {
    const std::int64_t count = reference[parameter(name)].elements();
    upload(parameter(name), tensors_[parameter(name)].rows(0, count));
  }
  for (const char* name : {"conv1d.weight", "conv1d.bias"})
    upload(parameter(name), group.channels(tensors_[parameter(name)]));
  for (const BoundOp& op : ops) op.enqueue(host.queue());
  host.queue().synchronize();
}

// Rounded on the way: xbc, the scan's operands twice, y, the end; and backward again, in other
// sums.
std::vector<Agreement> Mixer::check(const std::string&) {
  Shape one = shape_;
  one.set("H", shape_["H"] / shape_["G"]);
  one.set("G", 1);
  run::Processor host(execution::make_host_backend());
  RecordedTensors reference(host);
  run_reference(host, reference, one);
  const Group group(model(shape_).mamba), alone(model(one).mamba);
  std::vector<Agreement> agreements;
  const auto compare = [&](const std::string& what, const Values& ours, const Values& expected) {
    agreements.push_back({what, relative_error(ours, expected), 5 * execution::epsilon(Dtype::bf16),
                          false, some_of(1, shape_["G"], "groups")});
  };
  compare("out", tensors_["gated"].columns(0, group.width), reference["gated"].values());
  if (!backward_) return agreements;
  for (std::size_t i = 0; i < group.blocks.size(); ++i) {
    const Group::Block &mine = group.blocks[i], &its = alone.blocks[i];
    compare("d" + mine.name, tensors_["din_proj_out"].columns(mine.first, mine.count),
            reference["din_proj_out"].columns(its.first, its.count));
  }
  const std::string weight = "gradient/" + parameter("conv1d.weight");
  compare("dconv_w", group.channels(tensors_[weight]), reference[weight].values());
  return agreements;
}

Entry entry(const char* name, const char* help, bool backward) {
  return {.name = name,
          .help = help,
          .shapes = {Shape{{"B", 2}, {"T", 8192}, {"H", 64}, {"P", 64}, {"G", 8}, {"N", 128}}},
          .implementations = {{"ours", "", ""}, {"fused_forward", "", ""}, {"fused", "", ""}},
          .make = [backward](run::Gpu& gpu, const Shape& shape, std::int64_t seed) {
            return make_mixer(gpu, shape, seed, backward);
          }};
}

}  // namespace

RecordedMixer record_mixer(const Shape& shape, Form form, bool backward, execution::Dtype storage) {
  RecordedMixer recording(model(shape, form), shape["B"], shape["T"], false, storage);
  std::erase_if(recording.ops, [&](const RecordedOp& op) {
    return op.name.starts_with("in_proj") || op.name.starts_with("out_proj") ||
           (op.backward && !backward);
  });
  return recording;
}

std::unique_ptr<Case> make_mixer(run::Processor& processor, const Shape& shape, std::int64_t seed,
                                 bool backward) {
  return std::make_unique<Mixer>(processor, shape, seed, backward);
}

std::vector<Entry> mixer_entries() {
  return {entry("mixer_forward", "Mamba-2 mixer between its projections, forward", false),
          entry("mixer", "Mamba-2 mixer between its projections, forward and backward", true)};
}

}  // namespace stowage::drivers::bench
