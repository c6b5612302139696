#include "oracle.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "execution/plan_shape.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;

constexpr std::size_t kMostNodes = 4096;
using Nodes = std::bitset<kMostNodes>;

template <class T>
auto& at(T& list, int index) {
  return list[index];
}

/// Bytes of a region.
struct Bytes {
  Region region;
  std::size_t begin, end;
};

Bytes bytes_of(const Place& place) { return {place.region, place.offset, place.end()}; }

/// Of what a use names of a place; ranges are of the first buffer, others are used whole.
Bytes bytes_of(const Program& program, const Use& use, const Place& place) {
  if (place.buffer > 0) return bytes_of(place);
  const Range range = program.resolve(use);
  const std::size_t size = size_bytes(program.info(use.tensor).buffers.front().dtype);
  const std::size_t origin = place.offset - place.first;
  return {place.region, origin + static_cast<std::size_t>(range.begin) * size,
          origin + static_cast<std::size_t>(range.end) * size};
}

/// Calls `visit(bytes, access)` for all operands of a step, reads first.
template <class Visit>
void for_each_touched(const Program& program, const Plan& plan, const Step& step, Visit&& visit) {
  if (step.what == Step::What::mark) return;
  if (step.what == Step::What::copy_out || step.what == Step::What::copy_in) {
    visit(bytes_of(at(plan.places, step.places[0])), Access::read);
    visit(bytes_of(at(plan.places, step.places[1])), Access::write);
    return;
  }
  for (const bool writes : {false, true})
    for_each_operand(program, at(program.ops(), step.op), step, [&](const Use& use, int place) {
      if ((use.access != Access::read) == writes)
        visit(bytes_of(program, use, at(plan.places, place)), use.access);
    });
}

/// The order of all that is issued, each node with the set of those before it.
class Order {
 public:
  Order(const Program& program, const Plan& plan)
      : program_(program), plan_(plan), recorded_(static_cast<std::size_t>(plan.events), kNone) {}

  std::string run() {
    const int join = first_carried(plan_) - 1;
    for (int replay = 0; replay < 2 && fault_.empty(); ++replay) {
      std::map<int, int> joined;
      for_each_issued(plan_, 2, [&](int step, int, int) {
        if (fault_.empty()) issue(step);
        if (step == join) joined = last_;
      });
      if (!fault_.empty()) break;
      for (const auto& [queue, node] : joined)
        if (!before(node, last_.at(0)))
          fail(fmt::format("queue {} is not joined at the end", queue));
    }
    return fault_;
  }

 private:
  static constexpr int kNone = -1;
  struct Node {
    int step;
    int launch;  ///< 0: eager
  };

  void fail(std::string why) {
    if (fault_.empty()) fault_ = std::move(why);
  }
  int add(int step, const std::vector<int>& after) {
    const int node = static_cast<int>(nodes_.size());
    nodes_.push_back({step, launch_});
    Nodes& reached = before_.emplace_back();
    for (const int earlier : after) {
      if (earlier == kNone) continue;
      reached |= at(before_, earlier);
      reached.set(static_cast<std::size_t>(earlier));
    }
    return node;
  }
  bool before(int node, int later) const {
    return node == later || at(before_, later).test(static_cast<std::size_t>(node));
  }
  static int get(const std::map<int, int>& ends, int queue) {
    const auto found = ends.find(queue);
    return found == ends.end() ? kNone : found->second;
  }

  void issue(int index) {
    for (const Segment& segment : plan_.segments)
      if (segment.begin == index) begin(segment);
    const Step& step = at(plan_.steps, index);
    std::map<int, int>& ends = launch_ > 0 ? inside_ : last_;
    std::vector<int> after{get(ends, step.queue)};
    bool captured = launch_ == 0 || after[0] != kNone;
    for (const int event : step.waits) {
      const int record = at(recorded_, event);
      after.push_back(record);
      captured = captured || (record != kNone && at(nodes_, record).launch == launch_);
    }
    if (!captured) fail(fmt::format("{} is not captured", describe(program_, step)));
    const int node = add(index, after);
    ends[step.queue] = node;
    if (step.records >= 0) at(recorded_, step.records) = node;
    compare(node);
    compare_operands(step);
    for (const Segment& segment : plan_.segments)
      if (segment.end == index + 1) end(segment);
  }

  void begin(const Segment& segment) {
    const int start = add(kNone, {get(last_, segment.queue)});
    launch_ = ++launches_;
    inside_ = {{segment.queue, start}};
  }
  void end(const Segment& segment) {
    const int last = inside_.at(segment.queue);
    for (const auto& [queue, node] : inside_)
      if (!before(node, last)) fail(fmt::format("graph {} does not join {}", segment.name, queue));
    launch_ = 0;
    last_[segment.queue] = add(kNone, {last});
  }

  /// Everything earlier that touches the same bytes must be before this node.
  void compare(int node) {
    const Step& step = at(plan_.steps, at(nodes_, node).step);
    for_each_touched(program_, plan_, step, [&](const Bytes& bytes, Access access) {
      for_each_page(bytes, [&](const std::vector<Touch>& touches) {
        for (const Touch& other : touches) {
          const bool apart = other.bytes.begin >= bytes.end || bytes.begin >= other.bytes.end;
          if (apart || (access == Access::read && other.access == Access::read)) continue;
          if (!before(other.node, node))
            fail(fmt::format("{} is not ordered with {}", describe(program_, step),
                             describe(program_, at(plan_.steps, at(nodes_, other.node).step))));
        }
      });
    });
    for_each_touched(program_, plan_, step, [&](const Bytes& bytes, Access access) {
      for_each_page(bytes, [&](std::vector<Touch>& touches) {
        touches.push_back({bytes, access, node});
      });
    });
  }

  /// Two operands of an op share no bytes that it writes, unless they are of one buffer.
  void compare_operands(const Step& step) {
    if (step.what != Step::What::run && step.what != Step::What::rerun) return;
    struct Operand {
      Bytes bytes;
      Access access;
      int tensor, buffer;
    };
    std::vector<Operand> seen;
    for_each_operand(program_, at(program_.ops(), step.op), step, [&](const Use& use, int place) {
      const Place& own = at(plan_.places, place);
      const Bytes bytes = bytes_of(program_, use, own);
      for (const Operand& other : seen)
        if ((other.tensor != own.tensor.id || other.buffer != own.buffer) &&
            other.bytes.region == bytes.region && other.bytes.begin < bytes.end &&
            bytes.begin < other.bytes.end &&
            (use.access != Access::read || other.access != Access::read))
          fail(fmt::format("operands of {} share bytes", describe(program_, step)));
      seen.push_back({bytes, use.access, own.tensor.id, own.buffer});
    });
  }

  struct Touch {
    Bytes bytes;
    Access access;
    int node;
  };
  /// Calls `visit(touches)` for what was touched of each page that has some of the bytes.
  template <class Visit>
  void for_each_page(const Bytes& bytes, Visit&& visit) {
    for (std::size_t page = bytes.begin / kAlignment; page * kAlignment < bytes.end; ++page)
      visit(touches_[{bytes.region, page}]);
  }

  const Program& program_;
  const Plan& plan_;
  std::vector<Node> nodes_;
  std::vector<Nodes> before_;
  std::vector<int> recorded_;  ///< by event: the node of its latest record
  std::map<int, int> last_;    ///< by queue: its last node
  std::map<int, int> inside_;  ///< the same in the launch under way
  std::map<std::pair<Region, std::size_t>, std::vector<Touch>> touches_;  ///< by page
  int launch_ = 0;
  int launches_ = 0;
  std::string fault_;
};

using Value = std::uint64_t;

Value combine(Value a, Value b) {
  return (a ^ (b + 0x9e3779b97f4a7c15U + (a << 6) + (a >> 2))) * 0x100000001b3U;
}

/// Of bytes in which nothing was ever stored: no tensor has it.
constexpr Value kNothing = 0;

/// Parameters and optimizer states hold a value before the first step.
bool holds_at_first(const TensorInfo& info) {
  return is_persistent(info.lifetime) && info.lifetime != Lifetime::gradient;
}

/// A part of a bucket is some of its elements.
int whole_of(const Program& program, Tensor tensor) {
  const Tensor whole = program.info(tensor).whole;
  return whole ? whole.id : tensor.id;
}
std::size_t first_byte(const Program& program, Tensor tensor) {
  const TensorInfo& info = program.info(tensor);
  return static_cast<std::size_t>(info.first) * size_bytes(info.buffers.front().dtype);
}

/// What a stretch of a whole holds before the first step: a value of its own, or nothing.
Value at_first(const Program& program, Tensor tensor, std::size_t begin) {
  if (!holds_at_first(program.info(tensor))) return kNothing;
  return combine(combine(~static_cast<Value>(whole_of(program, tensor)), begin), 1);
}

/// A whole buffer's stretches that uses tell apart: each is written as a whole.
class Stretches {
 public:
  explicit Stretches(const Program& program) : program_(program), cuts_(program.tensors().size()) {
    for (const Op& op : program.ops())
      for (const Use& use : op.uses) {
        const Range range = program.resolve(use);
        const std::int64_t first = program.info(use.tensor).first;
        at(cuts_, whole_of(program, use.tensor)).insert({first + range.begin, first + range.end});
      }
  }

  /// Their bytes in a whole buffer of which something is used, in order.
  std::vector<std::pair<std::size_t, std::size_t>> of(const Use& use, int buffer) const {
    const BufferInfo& info = at(program_.info(use.tensor).buffers, buffer);
    if (buffer > 0) return {{0, info.bytes()}};
    const std::size_t size = size_bytes(info.dtype);
    const Range range = program_.resolve(use);
    const std::int64_t first = program_.info(use.tensor).first;
    std::vector<std::pair<std::size_t, std::size_t>> found;
    const std::set<std::int64_t>& cuts = at(cuts_, whole_of(program_, use.tensor));
    for (auto cut = cuts.find(first + range.begin); *cut < first + range.end; ++cut)
      found.emplace_back(static_cast<std::size_t>(*cut) * size,
                         static_cast<std::size_t>(*std::next(cut)) * size);
    return found;
  }

 private:
  const Program& program_;
  std::vector<std::set<std::int64_t>> cuts_;  ///< by whole, in elements
};

/// The values of an operand's stretches.
using Values = std::vector<Value>;

/// What an op makes of the values of its operands: those of buffers that it writes are replaced.
/// The copy of an input brings another value each time.
void apply(const Program& program, int index, std::size_t execution, std::vector<Values>& values) {
  const Op& op = at(program.ops(), index);
  Value read = combine(static_cast<Value>(index), op.launch ? 0 : execution);
  std::size_t next = 0;
  std::vector<bool> writes;
  for (const Use& use : op.uses)
    for (std::size_t b = 0; b < program.info(use.tensor).buffers.size(); ++b, ++next) {
      writes.push_back(use.access != Access::read);
      if (use.access != Access::write)
        for (const Value value : values[next]) read = combine(read, value);
    }
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t s = 0; writes[i] && s < values[i].size(); ++s)
      values[i][s] = combine(combine(read, i), s);
}

}  // namespace

/// The values that every op finds, in the program's own order; wholes are apart from each other.
class Reference {
 public:
  explicit Reference(const Program& program)
      : program_(program), stretches_(program), found_(program.ops().size()) {
    for (int replay = 0; replay < 2; ++replay)
      for (const Section& section : program.sections())
        for (int repetition = 0; repetition < std::min(section.repeat, 2); ++repetition)
          for (int op = section.begin; op < section.end; ++op) run(op);
  }

  /// By execution of the op, by operand.
  const std::vector<std::vector<Values>>& found(int op) const { return at(found_, op); }
  const Stretches& stretches() const { return stretches_; }

 private:
  void run(int op) {
    std::vector<std::vector<Value*>> operands;
    std::vector<Values> values;
    for (const Use& use : at(program_.ops(), op).uses)
      for (int b = 0; b < static_cast<int>(program_.info(use.tensor).buffers.size()); ++b) {
        operands.emplace_back();
        values.emplace_back();
        for (const auto& [begin, end] : stretches_.of(use, b)) {
          const Value first = at_first(program_, use.tensor, begin);
          const auto [held, added] =
              state_.try_emplace({whole_of(program_, use.tensor), b, begin}, first);
          operands.back().push_back(&held->second);
          values.back().push_back(*operands.back().back());
        }
      }
    at(found_, op).push_back(values);
    apply(program_, op, at(found_, op).size(), values);
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t s = 0; s < values[i].size(); ++s) *operands[i][s] = values[i][s];
  }

  const Program& program_;
  Stretches stretches_;
  std::map<std::tuple<int, int, std::size_t>, Value> state_;
  std::vector<std::vector<std::vector<Values>>> found_;
};

namespace {

/// What memory holds: stretches that were stored as a whole, and what was left of them.
class Memory {
 public:
  /// kNothing: nothing was ever stored there; kBroken: what is there is not one whole stretch.
  Value load(std::size_t begin, std::size_t end) const {
    const auto next = cells_.lower_bound(begin);
    if (next != cells_.end() && next->first == begin && next->second.end == end)
      return next->second.value;
    const bool covered = next != cells_.begin() && std::prev(next)->second.end > begin;
    return covered || (next != cells_.end() && next->first < end) ? kBroken : kNothing;
  }
  void store(std::size_t begin, std::size_t end, Value value) {
    cut(begin);
    cut(end);
    cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(end));
    cells_[begin] = {end, value};
  }

 private:
  static constexpr Value kBroken = ~Value{0};
  struct Cell {
    std::size_t end;
    Value value;
  };
  void cut(std::size_t where) {
    auto cell = cells_.lower_bound(where);
    if (cell == cells_.begin() || (--cell)->second.end <= where) return;
    cells_[where] = {cell->second.end, kBroken};
    cell->second = {where, kBroken};
  }

  std::map<std::size_t, Cell> cells_;  ///< by begin
};

/// Executes a plan on values of stretches in memory.
class Simulation {
 public:
  Simulation(const Program& program, const Plan& plan, const Reference& reference)
      : program_(program),
        plan_(plan),
        reference_(reference),
        executions_(program.ops().size(), 0) {
    for (const Place& place : plan_.places)
      if (place.region != Region::transient && holds_at_first(program_.info(place.tensor)))
        store_first(place);
  }

  std::string run() {
    std::string fault;
    for (int replay = 0; replay < 2; ++replay)
      for_each_issued(plan_, 2, [&](int index, int, int) {
        if (fault.empty()) fault = execute(at(plan_.steps, index));
      });
    return fault;
  }

 private:
  std::string execute(const Step& step) {
    if (step.what == Step::What::mark) return {};
    if (step.what == Step::What::copy_out || step.what == Step::What::copy_in) {
      const Place& from = at(plan_.places, step.places[0]);
      store(at(plan_.places, step.places[1]), all_of(from), load(from, all_of(from)));
      return {};
    }
    const Op& op = at(program_.ops(), step.op);
    std::vector<Values> values;
    for_each_operand(program_, op, step, [&](const Use& use, int place) {
      values.push_back(load(at(plan_.places, place), use));
    });
    std::string fault;
    std::size_t& execution = at(executions_, step.op);
    if (step.what == Step::What::run) {
      fault = compare(step, values, execution++);
    } else {
      // A rerun finds what its op has found, or will find.
      fault = compare(step, values, execution);
      if (execution > 0 && !fault.empty()) fault = compare(step, values, execution - 1);
    }
    apply(program_, step.op, execution, values);
    std::size_t next = 0;
    for_each_operand(program_, op, step, [&](const Use& use, int place) {
      if (use.access != Access::read) store(at(plan_.places, place), use, values[next]);
      ++next;
    });
    return fault;
  }

  /// Whether a step finds the operands of an execution of its op.
  std::string compare(const Step& step, const std::vector<Values>& values,
                      std::size_t execution) const {
    const auto& all = reference_.found(step.op);
    const std::vector<Values>& expected = all[std::min(execution, all.size() - 1)];
    std::size_t next = 0;
    for (const Use& use : at(program_.ops(), step.op).uses)
      for (std::size_t b = 0; b < program_.info(use.tensor).buffers.size(); ++b, ++next)
        if (use.access != Access::write && values[next] != expected[next])
          return fmt::format("{} finds another value of {}", describe(program_, step),
                             program_.info(use.tensor).name);
    return {};
  }

  /// A use of the elements that a place has.
  Use all_of(const Place& place) const {
    const BufferInfo& buffer = at(program_.info(place.tensor).buffers, place.buffer);
    if (place.bytes == buffer.bytes()) return {place.tensor, Access::write};
    const std::size_t size = size_bytes(buffer.dtype);
    return {place.tensor,
            Access::write,
            {static_cast<std::int64_t>(place.first / size),
             static_cast<std::int64_t>((place.first + place.bytes) / size)}};
  }

  /// A home holds what its tensor holds before the first step.
  void store_first(const Place& home) {
    Values values;
    for (const auto& [begin, end] : reference_.stretches().of(all_of(home), home.buffer))
      values.push_back(at_first(program_, home.tensor, begin));
    store(home, all_of(home), values);
  }

  /// Where the whole begins that a place is some bytes of; it wraps where that is before all.
  std::size_t origin(const Place& place) const {
    const std::size_t first = place.buffer > 0 ? 0 : first_byte(program_, place.tensor);
    return place.offset - place.first - first;
  }
  Values load(const Place& place, const Use& use) {
    Values values;
    for (const auto& [begin, end] : reference_.stretches().of(use, place.buffer))
      values.push_back(memory_[place.region].load(origin(place) + begin, origin(place) + end));
    return values;
  }
  void store(const Place& place, const Use& use, const Values& values) {
    std::size_t next = 0;
    for (const auto& [begin, end] : reference_.stretches().of(use, place.buffer))
      memory_[place.region].store(origin(place) + begin, origin(place) + end, values[next++]);
  }

  const Program& program_;
  const Plan& plan_;
  const Reference& reference_;
  std::vector<std::size_t> executions_;  ///< by op
  std::map<Region, Memory> memory_;
};

}  // namespace

Oracle::Oracle(const Program& program)
    : program_(program), reference_(std::make_unique<const Reference>(program)) {}

Oracle::~Oracle() = default;

std::string Oracle::judge(const Plan& plan) const {
  const std::string fault = Order(program_, plan).run();
  return fault.empty() ? Simulation(program_, plan, *reference_).run() : fault;
}

}  // namespace stowage::ctest
