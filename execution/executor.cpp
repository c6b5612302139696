#include "execution/executor.hpp"

#include <algorithm>
#include <atomic>

#include "execution/audit.hpp"
#include "execution/capture.hpp"
#include "execution/error.hpp"
#include "execution/observer.hpp"
#include "execution/plan_shape.hpp"

namespace stowage::execution {

ExecutorCounters& ExecutorCounters::operator+=(const ExecutorCounters& other) {
  launches += other.launches;
  runs += other.runs;
  reruns += other.reruns;
  copies_out += other.copies_out;
  copies_in += other.copies_in;
  bytes_out += other.bytes_out;
  bytes_in += other.bytes_in;
  return *this;
}

Executor::Executor(const Program& program, Plan plan, Device& device,
                   const ExecutorOptions& options)
    : program_(program),
      plan_(std::move(plan)),
      device_(device),
      options_(options),
      ring_(device.backend(), program, options.ring_slots),
      staged_(program.tensors().size(), 0) {
  const PlannedProgram planned{&program_, &plan_};
  if (!options_.proven) require_proven({&planned, 1});
  for (int r = 0; r < kRegions; ++r)
    STOWAGE_ASSERT(plan_.bytes[r] <= device_.bytes(static_cast<Region>(r)),
                   "program {} needs {} bytes of the {} region, the device has {}", program_.name(),
                   plan_.bytes[r], name(static_cast<Region>(r)),
                   device_.bytes(static_cast<Region>(r)));
  for (const QueueInfo& queue : plan_.queues) queues_.push_back(&device_.queue(queue));
  const auto holders = static_cast<int>(plan_.queues.size());  // one a queue, behind the plan's own
  for (int i = 0; i < plan_.events + holders; ++i)
    events_.push_back(device_.backend().make_event());
  for (int i = 0; i < options_.ring_slots; ++i)
    done_.push_back(device_.backend().make_timed_event());
  if (options_.audit) {
    STOWAGE_ASSERT(device_.backend().name() == "host", "audit mode needs the host backend");
    audit_ = std::make_unique<Audit>(device_.device_arena());
  }
  bind();
  bind_counted_rows();
  choose_queues();
  if (options_.warmup_steps == 0) capture();
}

Executor::~Executor() {
  try {
    device_.synchronize();
  } catch (...) {
    // The error was or will be reported by the call that waits for its result.
  }
}

void Executor::bind() {
  bound_.resize(plan_.steps.size());
  static std::atomic<int> bound_before = 0;  // one program may have several plans
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    Bound& bound = bound_[i];
    for (const int place : step.places)
      bound.addresses.push_back(device_.address(plan_.places[place]));
    if (step.what != Step::What::run && step.what != Step::What::rerun) continue;
    bound.issue = ++bound_before;
    std::size_t next = 0;
    for (const Use& use : program_.ops()[step.op].uses) {
      const TensorInfo& info = program_.info(use.tensor);
      bound.views.push_back({{bound.addresses.data() + next, info.buffers.size()}, &info});
      if (use.range != Range{})
        bind_range(use, plan_.places[step.places[next]].first, bound.addresses[next],
                   bound.views.back());
      next += info.buffers.size();
    }
  }
}

void Executor::bind_counted_rows() {
  std::vector<std::size_t> counted;
  for (std::size_t i = 0; i < plan_.steps.size(); ++i)
    if (counts_rows(plan_.steps[i])) counted.push_back(i);
  if (counted.empty()) return;
  moved_ = device_.backend().allocate(MemoryKind::host, counted.size() * sizeof(std::uint64_t));
  auto* moved = reinterpret_cast<std::uint64_t*>(moved_->data());
  for (const std::size_t i : counted) {
    const Place& place = plan_.places[plan_.steps[i].places.front()];
    const Place& count = plan_.places[plan_.steps[i].places.back()];
    const BufferInfo& buffer = program_.info(place.tensor).buffers[place.buffer];
    const auto last = program_.info(count.tensor).buffers.front().elements() - 1;
    bound_[i].rows = {static_cast<const std::int32_t*>(bound_[i].addresses.back()) + last,
                      buffer.bytes() / static_cast<std::size_t>(buffer.shape.front()),
                      buffer.bytes(), plan_.steps[i].what == Step::What::copy_out, moved++};
  }
}

void Executor::bind_range(const Use& use, std::size_t first, void*& address, View& view) {
  const Range range = program_.resolve(use);
  TensorInfo& info = ranges_.emplace_back(program_.info(use.tensor));
  BufferInfo& buffer = info.buffers.front();
  buffer.shape = {range.end - range.begin};
  address = static_cast<std::byte*>(address) +
            static_cast<std::size_t>(range.begin) * size_bytes(buffer.dtype) - first;
  view.info = &info;
}

/// Compute steps of graphs are captured on queue 0, whichever queue launches the graph: a plan
/// keeps all compute in one order, so what libraries hold for a queue is needed once.
void Executor::choose_queues() {
  for (const Step& step : plan_.steps) work_.push_back(queues_[step.queue]);
  for (const Segment& segment : plan_.segments)
    for (int i = segment.begin; i < segment.end; ++i)
      if (const auto at = static_cast<std::size_t>(i); plan_.steps[at].queue == segment.queue)
        work_[at] = queues_[0];
}

std::span<std::byte> Executor::stage(Tensor input) {
  done_[steps_ % options_.ring_slots]->synchronize();
  staged_[input.id] = 1;
  return ring_.slot(input, steps_);
}

void Executor::step() {
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    const TensorInfo& info = program_.tensors()[i];
    STOWAGE_ASSERT(info.lifetime != Lifetime::input || staged_[i],
                   "input {} of program {} was not staged", info.name, program_.name());
    staged_[i] = 0;
  }
  if (!captured_ && steps_ >= options_.warmup_steps) capture();
  for (Observer* observer : observers_) observer->begin_step();
  device_.take_turn(this, *queues_[0]);
  issue_all();
  const auto slot = static_cast<std::size_t>(steps_ % options_.ring_slots);
  queues_[0]->record(*done_[slot]);
  ++steps_;
}

void Executor::capture() {
  captured_ = true;
  if (audit_) return;
  CaptureEvents events(plan_);
  for (const Segment& segment : plan_.segments) {
    events.begin(device_.backend(), segment);
    graphs_.push_back(capture(segment, events));
    issued_by_graph_.push_back(count(segment.begin, segment.end));
  }
}

std::unique_ptr<Graph> Executor::capture(const Segment& segment, CaptureEvents& events) {
  Queue& origin = *queues_[0];
  device_.backend().begin_capture(origin);
  for (int i = segment.begin; i < segment.end; ++i) {
    const Step& step = plan_.steps[i];
    Queue& queue = *work_[i];
    events.wait(step, queue, events_);
    work(step, bound_[i], queue);
    events.record(step, queue, events_);
    events.hold(i, queue, *events_[plan_.events + step.queue]);
  }
  return device_.backend().end_capture(origin);
}

std::vector<std::size_t> Executor::graph_nodes() const {
  std::vector<std::size_t> nodes;
  for (const auto& graph : graphs_) nodes.push_back(graph->nodes());
  return nodes;
}

ExecutorCounters Executor::count(int begin, int end) const {
  ExecutorCounters sum;
  for (int i = begin; i < end; ++i) {
    const Step& step = plan_.steps[i];
    sum.runs += step.what == Step::What::run;
    sum.reruns += step.what == Step::What::rerun;
    if (!is_copy(step)) continue;
    const bool out = step.what == Step::What::copy_out;
    (out ? sum.copies_out : sum.copies_in) += 1;
    if (!counts_rows(step))
      (out ? sum.bytes_out : sum.bytes_in) += plan_.places[step.places[0]].bytes;
  }
  return sum;
}

ExecutorCounters Executor::counters() const {
  ExecutorCounters sum = counters_;
  const std::vector<std::size_t> counted = counted_bytes();
  for (std::size_t i = 0; i < counted.size(); ++i)
    (plan_.steps[i].what == Step::What::copy_out ? sum.bytes_out : sum.bytes_in) += counted[i];
  return sum;
}

std::vector<std::size_t> Executor::counted_bytes() const {
  if (!moved_) return {};
  std::vector<std::size_t> bytes(plan_.steps.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (std::uint64_t* moved = bound_[i].rows.moved)
      bytes[i] = std::atomic_ref(*moved).load(std::memory_order_relaxed);
  return bytes;
}

void Executor::issue_all() {
  // Steps of a segment may also be issued one by one: the proof holds for their own order too.
  const bool seen = std::ranges::any_of(observers_, [](auto* o) { return o->sees_ops(); });
  const std::size_t graphs = seen ? 0 : graphs_.size();
  std::size_t next = 0;  // segment
  int launched = 0;      // steps before this one, from the start of its segment, are in a graph
  for (const StepRange& section : plan_.sections) {
    const std::size_t first = next;
    for (int repetition = 0; repetition < section.repeat; ++repetition) {
      if (repetition > 0) {
        next = first;
        launched = section.begin;
      }
      for (int i = std::max(launched, section.begin); i < section.end; ++i) {
        if (next < graphs && plan_.segments[next].begin == i) {
          launch(next);
          launched = plan_.segments[next++].end;
          i = launched - 1;
        } else {
          issue(i);
          counters_ += count(i, i + 1);
        }
      }
    }
  }
}

void Executor::launch(std::size_t segment) {
  const auto queue = static_cast<std::size_t>(plan_.segments[segment].queue);
  graphs_[segment]->launch(*queues_[queue]);
  counters_ += issued_by_graph_[segment];
  ++counters_.launches;
}

void Executor::issue(int index) {
  const Step& step = plan_.steps[index];
  const Bound& bound = bound_[index];
  Queue& queue = *work_[index];
  for (const int event : step.waits) queue.wait(*events_[event]);
  if (step.what == Step::What::mark) {
    work(step, bound, queue);
  } else {
    for (Observer* observer : observers_) observer->before(index, queue);
    if (audit_) {
      device_.synchronize();
      audit_->open(program_, plan_, step, bound.addresses);
    }
    work(step, bound, queue);
    if (audit_) {
      device_.synchronize();
      audit_->close(describe(program_, step));
    }
    for (Observer* observer : observers_) observer->after(index, queue);
  }
  if (step.records >= 0) queue.record(*events_[step.records]);
}

void Executor::work(const Step& step, const Bound& bound, Queue& queue) {
  switch (step.what) {
    case Step::What::mark:
      return;
    case Step::What::copy_out:
    case Step::What::copy_in:
      if (counts_rows(step))
        queue.copy_rows(bound.addresses[1], bound.addresses[0], bound.rows);
      else
        queue.copy(bound.addresses[1], bound.addresses[0], plan_.places[step.places[0]].bytes);
      return;
    case Step::What::run:
    case Step::What::rerun:
      break;
  }
  const Op& op = program_.ops()[step.op];
  queue.issue = bound.issue;
  if (op.launch)
    op.launch(queue, bound.views);
  else
    copy_ring(op, bound, queue);
}

void Executor::copy_ring(const Op& op, const Bound& bound, Queue& queue) {
  const Tensor tensor = op.uses.front().tensor;
  const std::span<std::byte> slot = ring_.slot(tensor, steps_);
  if (program_.info(tensor).lifetime == Lifetime::input)
    queue.copy(bound.addresses.front(), slot.data(), slot.size());
  else
    queue.copy(slot.data(), bound.addresses.front(), slot.size());
}

std::size_t Executor::slot_of(int ago) const {
  const long step = steps_ - 1 - ago;
  STOWAGE_ASSERT(step >= 0 && ago < options_.ring_slots,
                 "the result of {} steps ago is not kept: {} were issued, the ring has {} slots",
                 ago, steps_, options_.ring_slots);
  return static_cast<std::size_t>(step % options_.ring_slots);
}

std::span<const std::byte> Executor::result(Tensor output, int ago) {
  done_[slot_of(ago)]->synchronize();
  return ring_.slot(output, steps_ - 1 - ago);
}

double Executor::end_time_s(int ago) { return done_[slot_of(ago)]->time_s(); }

}  // namespace stowage::execution
