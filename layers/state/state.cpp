#include "layers/state/state.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "execution/philox.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace stowage::layers {
namespace {

using execution::Dtype;
using execution::Lifetime;
using execution::PersistentLayout;

struct Group {
  std::string name;
  const Optimizer* rule;
  std::vector<const Parameter*> parameters;
};

/// Parameters of one reduction group that have the same states, cut where a bucket is full.
std::vector<Group> make_groups(const std::vector<Parameter>& parameters, const Optimizer& optimizer,
                               std::int64_t most) {
  std::vector<Group> groups;
  std::map<std::pair<std::string, const Optimizer*>, std::size_t> open;
  std::map<std::pair<std::string, const Optimizer*>, std::int64_t> filled;
  for (const Parameter& p : parameters) {
    const std::pair key{p.group, &optimizer.of(p)};
    if (!open.contains(key) || filled[key] >= most) {
      open[key] = groups.size();
      filled[key] = 0;
      groups.push_back({p.group, key.second, {}});
    }
    groups[open[key]].parameters.push_back(&p);
    filled[key] += p.elements();
  }
  return groups;
}

/// How many of the first groups have their states on the host: as many as make no more than a
/// fraction of the elements of all.
std::size_t groups_on_host(const std::vector<Group>& groups, double fraction) {
  const auto elements = [](const Group& group) {
    std::int64_t sum = 0;
    for (const Parameter* p : group.parameters) sum += p->elements();
    return static_cast<double>(sum);
  };
  double left = 0;
  for (const Group& group : groups) left += elements(group);
  left *= fraction;
  std::size_t count = 0;
  while (count < groups.size() && elements(groups[count]) <= left)
    left -= elements(groups[count++]);
  return count;
}

using Naming = std::function<std::string(const std::string&)>;

/// @param on_host of that many groups  @param rule none: of the parameters of any
void add_class(PersistentLayout& layout, const std::vector<Group>& groups, std::string_view what,
               Lifetime lifetime, Dtype dtype, const Sharing& sharing, const Naming& naming,
               std::size_t on_host, const Optimizer* rule) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (rule != nullptr && rule != groups[i].rule) continue;
    const std::string& group = groups[i].name;
    layout.open_bucket(
        fmt::format("{}/{}/{}", what, group, i), group, dtype,
        lifetime == Lifetime::optimizer_state ? sharing.updated(group) : sharing.summed(group),
        i < on_host ? execution::Region::host : execution::Region::persistent);
    for (const Parameter* p : groups[i].parameters)
      layout.add(execution::one_buffer(naming(p->name), dtype, p->local_shape(), lifetime));
  }
}

/// Rounded to a dtype.
std::vector<std::byte> to_bytes(const std::vector<float>& values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * execution::size_bytes(dtype));
  execution::with_storage_type(dtype, [&]<class S>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const S value = static_cast<S>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(S), &value, sizeof(S));
    }
  });
  return bytes;
}

}  // namespace

PersistentLayout lay_out_state(const std::vector<Parameter>& parameters,
                               const std::vector<execution::TensorInfo>& states,
                               Precision precision, const StateOptions& options,
                               const Sharing& sharing) {
  const std::vector<Group> groups =
      make_groups(parameters, *options.optimizer, options.bucket_elements);
  const Dtype accum = precision.accumulation();
  PersistentLayout layout;
  const auto add = [&](std::string_view what, Lifetime lifetime, Dtype dtype, const Naming& naming,
                       const Optimizer* rule = nullptr) {
    add_class(layout, groups, what, lifetime, dtype, sharing, naming,
              groups_on_host(groups, options.host.of(what)), rule);
  };
  add(kParameter, Lifetime::parameter, precision.storage, [](const auto& name) { return name; });
  if (!options.weights_only) {
    add(kGradient, Lifetime::gradient, options.type.gradient(precision), gradient_name);
    if (options.type.has_master(precision))
      add(kMaster, Lifetime::optimizer_state, accum, master_name);
    for (const Optimizer* rule : options.optimizer->rules())
      for (std::size_t i = 0; i < rule->states.size(); ++i)
        add(
            rule->states[i], Lifetime::optimizer_state, options.type.of(i, precision),
            [&](const std::string& name) { return state_name(rule->states[i], name); }, rule);
    if (options.ema)
      add(kEma, Lifetime::optimizer_state, accum,
          [](const std::string& name) { return state_name(kEma, name); });
  }
  for (const execution::TensorInfo& state : states) {
    layout.open_bucket(state.name, "", state.buffers[0].dtype);
    layout.add(state);
  }
  if (!options.weights_only) {
    layout.open_bucket(kGoodSteps, "", Dtype::int64);
    layout.add(execution::one_buffer(kGoodSteps, Dtype::int64, {1}, Lifetime::optimizer_state));
  }
  if (options.running_norm && !options.weights_only) {
    layout.open_bucket(kRunningNorm, "", Dtype::fp64);
    layout.add(execution::one_buffer(kRunningNorm, Dtype::fp64, {2}, Lifetime::optimizer_state));
  }
  layout.close();
  return layout;
}

void set_initial_state(execution::Device& device, const std::vector<Parameter>& parameters,
                       Precision precision, std::uint64_t seed, double std, int layers) {
  const PersistentLayout& layout = device.layout();
  execution::Queue& queue = device.queue({"compute", execution::Lane::compute});
  const auto clear = [&](execution::Region home, std::size_t bytes) {
    void* const region = device.base(home);
    const execution::TensorInfo all = execution::one_buffer(
        "persistent", Dtype::uint8, {static_cast<std::int64_t>(bytes)}, Lifetime::optimizer_state);
    if (bytes > 0) kernels::fill(queue, {{&region, 1}, &all}, 0);
  };
  clear(execution::Region::persistent, layout.bytes());
  clear(execution::Region::host, layout.host_bytes());
  for (const Parameter& parameter : parameters) {
    std::vector<std::string> names = {parameter.name};
    if (precision.has_master()) names.push_back(master_name(parameter.name));
    names.push_back(state_name(kEma, parameter.name));
    const double deviation = normal_deviation(parameter, std, layers);
    for (const std::string& name : names) {
      if (!layout.has(name)) continue;
      const execution::TensorInfo& info = layout.info(name);
      const execution::Range held = layout.held(name);
      if (deviation > 0) {  // nearly all weights: made where they stay
        void* const address = device.address(layout.place(name));
        execution::GlobalIndex index = parameter.index();
        index.first = held.begin;
        kernels::fill_normal(queue, {{&address, 1}, &info}, seed,
                             execution::stream_of(parameter.name),
                             execution::normal_scale(deviation), index);
      } else {
        device.write(name, to_bytes(initial_values(parameter, held, seed, std, layers),
                                    info.buffers[0].dtype));
      }
    }
  }
  device.synchronize();
}

}  // namespace stowage::layers
