#include "matrix.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "offload/gradient_memory_reuse.hpp"

namespace stowage::ctest {
namespace {

using execution::Plan;
using execution::Program;
using execution::Segment;
using execution::Step;
using Names = std::vector<std::string>;
using Mode = offload::GraphOptions::Mode;

constexpr int kSteps = 3;

const Names kGraphs = {"eager", "scopes", "step"};
const Names kRecompute = {"none", "some", "all"};
const std::vector<int> kMicrobatches = {1, 3};

Names offload_values() {
  Names values{"none", "all", "half", "auto", "reuse"};
  const Names modules = module_names();
  values.insert(values.end(), modules.begin(), modules.end());
  return values;
}

/// The budget decides: by copies and reruns, or with gradients' memory as well.
bool is_automatic(const Cell& cell) { return cell.offload == "auto" || cell.offload == "reuse"; }

/// Buffers that lie where gradients come later.
long tenants(const Program& program, const Plan& plan) {
  return std::count_if(plan.places.begin(), plan.places.end(), [&](const execution::Place& place) {
    return offload::in_gradient_memory(program, place);
  });
}

/// Room that reductions over ranks work in: no plan can do with less.
std::size_t reduction_bytes(const Program& program) {
  std::set<int> rooms;
  for (const execution::Op& op : program.ops())
    if (op.communication && op.communication->transfers.empty())
      rooms.insert(op.uses.back().tensor.id);
  std::size_t bytes = 0;
  for (const int room : rooms)
    if (const execution::TensorInfo& info = program.info({room});
        info.lifetime == execution::Lifetime::scratch)
      bytes += execution::align_up(info.bytes());
  return bytes;
}

Names recomputed(const std::string& word) {
  if (word == "none") return {};
  if (word == "some") return {"mlp_act", "moe_act", "mamba_ssm"};
  Names names = module_names();
  std::erase_if(names, [](const std::string& name) { return name.ends_with("_norm"); });
  return names;
}

/// Bytes of states of parameters.
std::size_t state_bytes(const execution::PersistentLayout& layout) {
  std::size_t sum = 0;
  for (const execution::Bucket& bucket : layout.buckets())
    if (!bucket.group.empty() &&
        layout.whole(bucket.tensors.front()).lifetime == execution::Lifetime::optimizer_state)
      sum += execution::align_up(bucket.bytes());
  return sum;
}

/// Whether a copy moves what backward needs, no state.
bool moves_saved(const Program& program, const Plan& plan, const Step& step) {
  return is_copy(step) && !is_persistent(program.info(plan.places[step.places[0]].tensor).lifetime);
}

/// Whether a program, which may be a stage's, saves what a module name stands for.
bool saves(const Program& program, const std::string& module) {
  return std::ranges::any_of(program.tensors(), [&](const execution::TensorInfo& info) {
    return module == "all" ? !info.module.empty() : info.module == module;
  });
}

/// What a cell chooses of each axis, in words.
Names choices(const Cell& cell) {
  Names values{"graphs " + cell.graphs, "offload " + cell.offload, "recompute " + cell.recompute,
               fmt::format("microbatches {}", cell.microbatches)};
  if (cell.overlapping) values.push_back("beside");
  if (cell.delay) values.push_back("delay");
  values.push_back(fmt::format("inflight {}", cell.max_inflight));
  values.push_back(fmt::format("min {}", cell.min_tensor_bytes));
  return values;
}

std::vector<offload::ModuleName> listed(const Names& names) {
  std::vector<offload::ModuleName> result;
  for (const std::string& name : names) result.push_back({name, {name}});
  return result;
}

offload::GraphOptions graphs(const Cell& cell) {
  offload::GraphOptions options;
  options.mode = cell.graphs == "eager"  ? Mode::off
                 : cell.graphs == "step" ? Mode::step
                                         : Mode::scopes;
  options.scopes = cell.graphs == "layer"    ? Names{"layer"}
                   : cell.graphs == "router" ? Names{"attn", "mamba", "moe_router"}
                                             : Names{"attn", "mamba", "mlp", "moe", "moe_router"};
  options.delay_until_graph = cell.delay;
  if (cell.overlapping) options.copies = offload::GraphOptions::Copies::overlapping;
  return options;
}

/// Steps of a kind in one execution of a plan.
long count(const Plan& plan, Step::What what) {
  long sum = 0;
  execution::for_each_issued(plan, 1 << 20,
                             [&](int step, int, int) { sum += plan.steps[step].what == what; });
  return sum;
}

/// Launches of graphs in one execution of a plan.
long launches(const Plan& plan) {
  long sum = 0;
  execution::for_each_issued(plan, 1 << 20, [&](int step, int, int) {
    sum += std::any_of(plan.segments.begin(), plan.segments.end(),
                       [&](const Segment& segment) { return segment.begin == step; });
  });
  return sum;
}

/// Copies of a graph that have another one behind them on their queue, which a record holds.
std::size_t held(const Plan& plan, const Segment& segment) {
  std::map<int, std::size_t> copies;  // by queue
  for (int i = segment.begin; i < segment.end; ++i) {
    const Step& step = plan.steps[i];
    if (step.what == Step::What::copy_out || step.what == Step::What::copy_in) ++copies[step.queue];
  }
  std::size_t sum = 0;
  for (const auto& [queue, number] : copies) sum += number - 1;
  return sum;
}

/// Nodes of a graph that tie it to what is outside: external waits and records.
std::size_t ties(const Plan& plan, const Segment& segment) {
  const std::vector<int> recorder = recorders(plan);
  const auto inside = [&](int step) { return step >= segment.begin && step < segment.end; };
  std::size_t waits = 0;
  std::set<int> records;
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i)
    for (const int event : plan.steps[i].waits) {
      const bool recorded_inside = inside(recorder[event]);
      if (inside(i) && !recorded_inside) ++waits;
      if (!inside(i) && recorded_inside) records.insert(event);
    }
  return waits + records.size();
}

/// How many nodes each op of a program makes: every compute step is captured alone.
std::map<std::string, std::size_t> measure_pieces(const Program& program, Plan plan,
                                                  execution::Device& device) {
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i) {
    const Step& step = plan.steps[i];
    if (step.what == Step::What::run && step.queue == 0)
      plan.segments.push_back({i, i + 1, 0, describe(program, step)});
  }
  const execution::Executor executor(program, plan, device);
  const std::vector<std::size_t> nodes = executor.graph_nodes();
  std::map<std::string, std::size_t> pieces;
  for (std::size_t s = 0; s < nodes.size(); ++s)
    pieces[plan.segments[s].name] = nodes[s] - ties(plan, plan.segments[s]);
  return pieces;
}

}  // namespace

std::string Cell::name() const {
  return fmt::format(
      "{}, offload {}, recompute {}, {} microbatches, inflight {}, delay {}, beside {}, min {}, "
      "states away {}, weights {}",
      graphs, offload, recompute, microbatches, max_inflight, delay, overlapping, min_tensor_bytes,
      states, weights);
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const std::string& mode : kGraphs)
    for (const std::string& offload : offload_values())
      for (const std::string& recompute : kRecompute)
        for (const int microbatches : kMicrobatches)
          cells.push_back({.graphs = mode,
                           .offload = offload,
                           .recompute = recompute,
                           .microbatches = microbatches});
  return cells;
}

std::vector<Cell> pairwise_cells() {
  using Pair = std::pair<std::string, std::string>;
  const auto pairs = [](const Cell& cell) {
    Names values = choices(cell);
    values.resize(4);  // the axes of all_cells
    std::vector<Pair> result;
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t j = i + 1; j < values.size(); ++j) result.emplace_back(values[i], values[j]);
    return result;
  };
  const std::vector<Cell> all = all_cells();
  std::set<Pair> missing;
  for (const Cell& cell : all)
    for (const Pair& pair : pairs(cell)) missing.insert(pair);
  std::vector<Cell> chosen;
  while (!missing.empty()) {
    const auto gain = [&](const Cell& cell) {
      const std::vector<Pair> has = pairs(cell);
      return std::count_if(has.begin(), has.end(),
                           [&](const Pair& pair) { return missing.contains(pair); });
    };
    const Cell& best = *std::max_element(
        all.begin(), all.end(), [&](const Cell& a, const Cell& b) { return gain(a) < gain(b); });
    for (const Pair& pair : pairs(best)) missing.erase(pair);
    chosen.push_back(best);
  }
  // Every second one with states on the host too, a quarter of these with gradients and parameters.
  for (std::size_t i = 0, n = chosen.size(); i < n; i += 2) {
    chosen.push_back(chosen[i]);
    chosen.back().states = true;
    chosen.back().weights = i % 8 == 0;
  }
  // With copies beside the graphs too.
  for (std::size_t i = 0, n = chosen.size(); i < n; ++i) {
    const Cell cell = chosen[i];
    if (cell.graphs != "scopes" || cell.offload == "none") continue;
    chosen.push_back(cell);
    chosen.back().overlapping = true;
  }
  return chosen;
}

std::vector<Cell> dealt_cells(std::size_t hand, std::size_t hands, const std::vector<Cell>& cells) {
  std::set<std::string> missing;
  std::vector<Cell> dealt;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Names values = choices(cells[i]);
    missing.insert(values.begin(), values.end());
    if (i % hands == hand) dealt.push_back(cells[i]);
  }
  for (const Cell& cell : dealt)
    for (const std::string& value : choices(cell)) missing.erase(value);
  for (const Cell& cell : cells) {
    const Names values = choices(cell);
    const auto seen = std::erase_if(
        missing, [&](const std::string& one) { return std::ranges::count(values, one) > 0; });
    if (seen > 0) dealt.push_back(cell);
  }
  return dealt;
}

std::vector<Cell> knob_cells() {
  std::vector<Cell> cells;
  for (const char* mode : {"scopes", "layer", "step"})
    for (const int microbatches : kMicrobatches) {
      const Cell cell{.graphs = mode, .offload = "all", .microbatches = microbatches};
      for (const int cap : {0, 1, 4}) {
        cells.push_back(cell);
        cells.back().max_inflight = cap;
      }
      cells.push_back(cell);
      cells.back().delay = true;
      if (cell.graphs != "step") {
        cells.push_back(cell);
        cells.back().overlapping = true;
        cells.push_back(cell);
        cells.back().delay = cells.back().overlapping = true;
      }
      cells.push_back(cell);
      cells.back().min_tensor_bytes = 1000;
    }
  // The router alone, with all that is around it rerun or moved op by op.
  for (const char* recompute : {"none", "some", "all"})
    cells.push_back({.graphs = "router", .offload = "all", .recompute = recompute});
  return cells;
}

const Matrix::Plain& Matrix::plain(int microbatches) {
  if (const auto found = plain_.find(microbatches); found != plain_.end()) return found->second;
  forecast::TrainerOptions plain = options({.microbatches = microbatches});
  plain.capacities = {plain.capacities.back()};
  TinyRun run(std::move(plain), setup_.backend());
  Plain result;
  result.outcome = this->run(run);
  const auto& training = *run.trainer().plan().training().front();
  result.transient_bytes = training.plan.bytes[static_cast<int>(execution::Region::transient)];
  result.reduction_bytes = reduction_bytes(training.recorded.program);
  result.persistent_bytes = training.plan.bytes[static_cast<int>(execution::Region::persistent)];
  result.state_bytes = state_bytes(run.trainer().plan().layout());
  result.pieces = measure_pieces(training.recorded.program, training.plan, run.trainer().device());
  return plain_.emplace(microbatches, std::move(result)).first->second;
}

forecast::TrainerOptions Matrix::options(const Cell& cell) {
  forecast::TrainerOptions options = tiny_options(every_kind() + "M", setup_.dtype);
  options.state.optimizer = setup_.optimizer;
  options.step.microbatches = cell.microbatches;
  options.evaluation_microbatches = 0;
  options.planner.graphs = graphs(cell);
  offload::Policy& policy = options.planner.policy;
  policy.recompute = listed(recomputed(cell.recompute));
  policy.min_tensor_bytes = cell.min_tensor_bytes;
  policy.keep_exposed = false;
  policy.caps.max_inflight = cell.max_inflight;
  policy.kind = offload::Policy::Kind::manual;
  if (is_automatic(cell)) {
    const Plain& kept = plain(cell.microbatches);
    policy.kind = offload::Policy::Kind::automatic;
    policy.reuse_gradient_memory = cell.offload == "reuse";
    const std::size_t movable = kept.transient_bytes - kept.reduction_bytes;
    policy.device_budget_bytes =
        static_cast<std::int64_t>(kept.persistent_bytes - (cell.states ? kept.state_bytes : 0) +
                                  kept.reduction_bytes + movable * setup_.budget_percent / 100);
  } else if (cell.offload == "all" || cell.offload == "half") {
    policy.offload = listed(module_names());
    if (cell.offload == "half") policy.fraction = 0.5;
  } else if (cell.offload != "none") {
    policy.offload = listed({cell.offload});
  }
  if (cell.states) {
    options.state.host.names = {std::string(layers::kMaster)};
    for (const std::string_view state : options.state.optimizer->all_states())
      options.state.host.names.emplace_back(state);
    if (cell.weights)
      for (const std::string_view what : {layers::kGradient, layers::kParameter})
        options.state.host.names.emplace_back(what);
    options.optimizer.window_elements = 2 * execution::kBucketGrain;
  }
  if (setup_.adjust) setup_.adjust(options);
  return options;
}

Matrix::Outcome Matrix::run(TinyRun& run) const {
  Outcome result;
  for (int i = 0; i < kSteps; ++i) {
    if (!setup_.packings.empty())
      run.set_packing(setup_.packings[static_cast<std::size_t>(i) % setup_.packings.size()]);
    run.train(7 * setup_.rank + i, setup_.lr);
    result.losses.push_back(run.loss()[0]);
    result.losses.push_back(run.grad_norm());
  }
  result.state = setup_.digest ? run.digest() : run.state();
  return result;
}

void Matrix::check(const Cell& cell) {
  SCOPED_TRACE(cell.name());
  // First: two runs at once would share transports, which know the memory of one.
  const auto& outcome = plain(cell.microbatches).outcome;
  TinyRun run(options(cell), setup_.backend());
  const std::uint64_t allocations = run.backend().allocations();
  EXPECT_TRUE(this->run(run) == outcome);
  EXPECT_EQ(run.backend().allocations(), allocations);
  expect_counts(cell, run);
}

void Matrix::expect_counts(const Cell& cell, TinyRun& run) {
  long steps = 0;
  for (const std::int64_t capacity : run.trainer().plan().options().capacities) {
    const execution::Executor& executor = run.trainer().training(capacity).executor;
    if (executor.steps() > 0) expect_counts(cell, executor);
    steps += executor.steps();
  }
  EXPECT_EQ(steps, kSteps);
}

void Matrix::expect_counts(const Cell& cell, const execution::Executor& executor) {
  const long steps = executor.steps();
  const Plan& plan = executor.plan();
  const Program& program = executor.program();
  const execution::ExecutorCounters& counters = executor.counters();
  EXPECT_EQ(counters.copies_out, steps * count(plan, Step::What::copy_out));
  EXPECT_EQ(counters.copies_in, steps * count(plan, Step::What::copy_in));
  if (!cell.weights) {  // a window that is read alone, or written alone, moves one way
    EXPECT_EQ(counters.copies_in, counters.copies_out);
    EXPECT_EQ(counters.bytes_in, counters.bytes_out);
  }
  EXPECT_EQ(counters.reruns, steps * count(plan, Step::What::rerun));
  EXPECT_EQ(counters.launches, steps * launches(plan));
  const Names again = recomputed(cell.recompute);
  const bool rerun_instead = std::find(again.begin(), again.end(), cell.offload) != again.end();
  const auto saved_copies = std::ranges::count_if(
      plan.steps, [&](const Step& step) { return moves_saved(program, plan, step); });
  if (cell.offload == "none") {
    EXPECT_EQ(saved_copies, 0);
  } else if (!is_automatic(cell) && cell.offload != "half" && !rerun_instead) {
    EXPECT_EQ(saved_copies > 0, saves(program, cell.offload));
  }
  if (cell.states) {
    EXPECT_GT(counters.copies_out, saved_copies);
  }
  EXPECT_EQ(counters.reruns > 0, !again.empty() || (is_automatic(cell) && counters.reruns > 0));
  EXPECT_EQ(tenants(program, plan) > 0, cell.offload == "reuse" && !cell.weights);
  EXPECT_EQ(counters.launches > 0, cell.graphs != "eager");
  std::set<std::tuple<int, int, std::size_t>> moved;
  for (const Step& step : plan.steps)
    if (step.what == Step::What::copy_out && moves_saved(program, plan, step)) {
      const execution::Place& from = plan.places[step.places[0]];
      EXPECT_TRUE(moved.emplace(from.tensor.id, from.buffer, from.first).second) << "copied twice";
    }
  const std::vector<std::size_t> nodes = executor.graph_nodes();
  ASSERT_EQ(nodes.size(), plan.segments.size());
  const auto& pieces = plain(cell.microbatches).pieces;
  for (std::size_t s = 0; s < nodes.size(); ++s) {
    const Segment& segment = plan.segments[s];
    std::size_t expected = ties(plan, segment) + held(plan, segment);
    bool known = true;
    for (int i = segment.begin; i < segment.end; ++i) {
      const Step& step = plan.steps[i];
      if (step.what == Step::What::mark) continue;
      if (step.op < 0) {
        ++expected;
        continue;
      }
      const execution::Op& op = program.ops()[step.op];
      // An op that only reruns has the nodes of the one that it stands for.
      constexpr std::string_view kAgain = "_again";
      const auto found =
          pieces.find(op.only_rerun ? op.name.substr(0, op.name.size() - kAgain.size()) : op.name);
      if (found != pieces.end()) {
        expected += found->second;
      } else if (op.lane == execution::Lane::comm) {
        ++expected;  // and more, as the transport likes
        known = false;
      } else {
        ++expected;
      }
    }
    if (known)
      EXPECT_EQ(nodes[s], expected) << segment.name;
    else
      EXPECT_GE(nodes[s], expected) << segment.name;
  }
}

}  // namespace stowage::ctest
