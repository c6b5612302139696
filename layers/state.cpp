#include "layers/state.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <span>

#include "execution/error.hpp"
#include "layers/blocks.hpp"

namespace stowage::layers {
namespace {

using execution::Dtype;
using execution::Lifetime;
using execution::PersistentLayout;

struct Group {
  std::string name;
  std::vector<const Parameter*> parameters;
};

/// Parameters of one reduction group, cut where a bucket is full.
std::vector<Group> make_groups(const std::vector<Parameter>& parameters, std::int64_t most) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> open;
  std::map<std::string, std::int64_t> filled;
  for (const Parameter& p : parameters) {
    if (!open.contains(p.group) || filled[p.group] >= most) {
      open[p.group] = groups.size();
      filled[p.group] = 0;
      groups.push_back({p.group, {}});
    }
    groups[open[p.group]].parameters.push_back(&p);
    filled[p.group] += p.elements();
  }
  return groups;
}

using Naming = std::function<std::string(const std::string&)>;

void add_class(PersistentLayout& layout, const std::vector<Group>& groups, const char* what,
               Lifetime lifetime, Dtype dtype, int shards, const Naming& naming) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    layout.open_bucket(fmt::format("{}/{}/{}", what, groups[i].name, i), groups[i].name, dtype,
                       shards);
    for (const Parameter* p : groups[i].parameters)
      layout.add({naming(p->name), {{"payload", dtype, p->shape}}, lifetime, {}, {}});
  }
}

/// Rounded to a dtype. @param bytes grows to what they take
std::span<const std::byte> to_bytes(std::span<const float> values, Dtype dtype,
                                    std::vector<std::byte>& bytes) {
  const std::size_t needed = values.size() * execution::size_bytes(dtype);
  if (bytes.size() < needed) bytes.resize(needed);
  execution::with_storage_type(dtype, [&]<class S>() {
    for_blocks(static_cast<std::int64_t>(values.size()), [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        const S value = static_cast<S>(values[i]);
        std::memcpy(bytes.data() + i * sizeof(S), &value, sizeof(S));
      }
    });
  });
  return std::span(bytes).first(needed);
}

}  // namespace

PersistentLayout lay_out_state(const std::vector<Parameter>& parameters,
                               const std::vector<execution::TensorInfo>& states,
                               Precision precision, const StateOptions& options) {
  const std::vector<Group> groups = make_groups(parameters, options.bucket_elements);
  const Dtype accum = precision.accumulation();
  PersistentLayout layout;
  const auto add = [&](const char* what, Lifetime lifetime, Dtype dtype, const Naming& naming) {
    add_class(layout, groups, what, lifetime, dtype, options.shards, naming);
  };
  add("parameter", Lifetime::parameter, precision.storage, [](const auto& name) { return name; });
  add("gradient", Lifetime::gradient, accum, gradient_name);
  if (precision.has_master()) add("master", Lifetime::optimizer_state, accum, master_name);
  add("adam_m", Lifetime::optimizer_state, accum, first_moment_name);
  add("adam_v", Lifetime::optimizer_state, accum, second_moment_name);
  for (const execution::TensorInfo& state : states) {
    layout.open_bucket(state.name, "", state.buffers[0].dtype);
    layout.add(state);
  }
  layout.open_bucket(kGoodSteps, "", Dtype::int64);
  layout.add({kGoodSteps, {{"payload", Dtype::int64, {1}}}, Lifetime::optimizer_state, {}, {}});
  layout.close();
  return layout;
}

void set_initial_state(execution::Device& device, const std::vector<Parameter>& parameters,
                       Precision precision, std::uint64_t seed, double std, int layers) {
  constexpr std::int64_t kPiece = std::int64_t{4} << 20;  // elements: memory that stays in use
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (const Parameter& parameter : parameters)
    for (std::int64_t first = 0; first < parameter.elements(); first += kPiece) {
      values.resize(static_cast<std::size_t>(std::min(kPiece, parameter.elements() - first)));
      initial_values(parameter, seed, std, layers, first, values);
      const auto set = [&](const std::string& name, Dtype dtype) {
        device.write(name, to_bytes(values, dtype, bytes),
                     static_cast<std::size_t>(first) * execution::size_bytes(dtype));
      };
      set(parameter.name, precision.storage);
      if (precision.has_master()) set(master_name(parameter.name), precision.accumulation());
    }
}

}  // namespace stowage::layers
