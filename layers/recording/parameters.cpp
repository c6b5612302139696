#include "layers/recording/parameters.hpp"

#include <algorithm>
#include <cmath>

#include "execution/error.hpp"
#include "execution/philox.hpp"

namespace stowage::layers {
namespace {

/// Inverse of softplus at a step size that is log-uniform in [1e-3, 1e-1], floored at 1e-4
/// (mamba_ssm's initialisation of dt_bias).
float dt_bias(double uniform) {
  const double low = std::log(1e-3);
  const double high = std::log(1e-1);
  const double dt = std::max(std::exp(low + uniform * (high - low)), 1e-4);
  return static_cast<float>(dt + std::log(-std::expm1(-dt)));
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return elements;
}

}  // namespace

std::int64_t Cut::extent() const {
  std::int64_t sum = 0;
  for (const execution::Range& range : ranges) sum += range.end - range.begin;
  return sum;
}

Cut Cut::of(execution::Range local) const {
  Cut part{dimension, {}};
  std::int64_t first = 0;
  for (const execution::Range& range : ranges) {
    const std::int64_t length = range.end - range.begin;
    const std::int64_t begin = std::clamp<std::int64_t>(local.begin - first, 0, length);
    const std::int64_t end = std::clamp<std::int64_t>(local.end - first, 0, length);
    if (begin < end) part.ranges.push_back({range.begin + begin, range.begin + end});
    first += length;
  }
  return part;
}

std::vector<std::int64_t> Parameter::local_shape() const {
  std::vector<std::int64_t> local = shape;
  for (const Cut& cut : cuts) local[cut.dimension] = cut.extent();
  return local;
}

std::int64_t Parameter::elements() const { return product(local_shape()); }

std::int64_t Parameter::global_elements() const { return product(shape); }

execution::GlobalIndex Parameter::index() const {
  using execution::GlobalIndex;
  GlobalIndex index;
  if (cuts.empty()) return index;
  STOWAGE_ASSERT(shape.size() <= GlobalIndex::kDimensions, "{} has {} dimensions", name,
                 shape.size());
  const std::vector<std::int64_t> local = local_shape();
  index.dimensions = static_cast<int>(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    index.dimension[d].local = local[d];
    index.dimension[d].global = shape[d];
  }
  for (const Cut& cut : cuts) {
    GlobalIndex::Dimension& at = index.dimension[cut.dimension];
    STOWAGE_ASSERT(cut.ranges.size() <= GlobalIndex::kRanges, "{} has {} ranges of dimension {}",
                   name, cut.ranges.size(), cut.dimension);
    for (const execution::Range& range : cut.ranges) {
      at.begin[at.ranges] = range.begin;
      at.length[at.ranges++] = range.end - range.begin;
    }
  }
  return index;
}

execution::Range Parameter::repeated() const {
  if (repeat.copies == 1) return {0, 0};
  const std::int64_t row = elements() / local(0);
  return {repeat.rows.begin * row, repeat.rows.end * row};
}

std::vector<ShardRange> Parameter::shard_ranges() const {
  const execution::Range all{0, elements()};
  if (repeat.copies == 1) return {{all, index()}};
  const execution::Range inside = repeated();
  std::vector<ShardRange> found;
  const auto add = [&](execution::Range elements, execution::Range rows) {
    if (elements.begin == elements.end) return;
    Parameter part = *this;
    for (Cut& cut : part.cuts)
      if (cut.dimension == 0) cut = cut.of(rows);
    found.push_back({elements, part.index()});
  };
  add({0, inside.begin}, {0, repeat.rows.begin});
  add(inside, repeat.rows);
  add({inside.end, all.end}, {repeat.rows.end, local(0)});
  return found;
}

std::string gradient_name(const std::string& parameter) { return "gradient/" + parameter; }
std::string master_name(const std::string& parameter) { return "master/" + parameter; }
std::string state_name(std::string_view state, const std::string& parameter) {
  return std::string(state) + "/" + parameter;
}
std::string parameter_of(const std::string& tensor) { return tensor.substr(tensor.find('/') + 1); }

double normal_deviation(const Parameter& parameter, double std, int layers) {
  if (parameter.init == Init::normal) return std;
  return parameter.init == Init::residual_normal ? std / std::sqrt(2.0 * layers) : 0;
}

std::vector<float> initial_values(const Parameter& parameter, execution::Range range,
                                  std::uint64_t seed, double std, int layers) {
  const std::uint64_t stream = execution::stream_of(parameter.name);
  const float scale = execution::normal_scale(normal_deviation(parameter, std, layers));
  const auto value = [&](std::uint64_t i) -> float {
    switch (parameter.init) {
      case Init::normal:
      case Init::residual_normal:
        return execution::normal(seed, stream, i, scale);
      case Init::ones:
        return 1;
      case Init::zeros:
        return 0;
      case Init::uniform_taps:
        return execution::symmetric_uniform(
            seed, stream, i, 1 / std::sqrt(static_cast<float>(parameter.shape.back())));
      case Init::a_log:
        return static_cast<float>(std::log(1.0 + 15.0 * execution::uniform(seed, stream, i)));
      case Init::dt_bias:
        return dt_bias(execution::uniform(seed, stream, i));
    }
    return 0;
  };
  const execution::GlobalIndex index = parameter.index();
  std::vector<float> values;
  for (std::int64_t i = range.begin; i < range.end; ++i)
    values.push_back(value(static_cast<std::uint64_t>(index(i))));
  return values;
}

}  // namespace stowage::layers
