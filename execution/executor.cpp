#include "execution/executor.hpp"

#include "execution/audit.hpp"
#include "execution/error.hpp"
#include "execution/observer.hpp"
#include "execution/plan_shape.hpp"

namespace stowage::execution {
Executor::Executor(const Program& program, Plan plan, Device& device,
                   const ExecutorOptions& options)
    : program_(program),
      plan_(std::move(plan)),
      device_(device),
      options_(options),
      ring_(device.backend(), program, options.ring_slots),
      staged_(program.tensors().size(), 0) {
  const PlannedProgram planned{&program_, &plan_};
  require_proven({&planned, 1});
  for (int r = 0; r < kRegions; ++r)
    STOWAGE_ASSERT(plan_.bytes[r] <= device_.bytes(static_cast<Region>(r)),
                   "program {} needs {} bytes of the {} region, the device has {}", program_.name(),
                   plan_.bytes[r], name(static_cast<Region>(r)),
                   device_.bytes(static_cast<Region>(r)));
  for (const QueueInfo& queue : plan_.queues) queues_.push_back(&device_.queue(queue));
  for (int i = 0; i < plan_.events; ++i) events_.push_back(device_.backend().make_event());
  for (int i = 0; i < options_.ring_slots; ++i)
    done_.push_back(device_.backend().make_timed_event());
  if (options_.audit) {
    STOWAGE_ASSERT(device_.backend().name() == "host", "audit mode needs the host backend");
    audit_ = std::make_unique<Audit>(device_.device_arena());
  }
  bind();
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
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    Bound& bound = bound_[i];
    for (const int place : step.places)
      bound.addresses.push_back(device_.address(plan_.places[static_cast<std::size_t>(place)]));
    if (step.what != Step::What::run && step.what != Step::What::rerun) continue;
    std::size_t next = 0;
    for (const Use& use : program_.ops()[static_cast<std::size_t>(step.op)].uses) {
      const TensorInfo& info = program_.info(use.tensor);
      bound.views.push_back({{bound.addresses.data() + next, info.buffers.size()}, &info});
      next += info.buffers.size();
    }
  }
}

std::span<std::byte> Executor::stage(Tensor input) {
  done_[static_cast<std::size_t>(steps_ % options_.ring_slots)]->synchronize();
  staged_[static_cast<std::size_t>(input.id)] = 1;
  return ring_.slot(input, steps_);
}

void Executor::step() {
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    const TensorInfo& info = program_.tensors()[i];
    STOWAGE_ASSERT(info.lifetime != Lifetime::input || staged_[i],
                   "input {} of program {} was not staged", info.name, program_.name());
    staged_[i] = 0;
  }
  for (Observer* observer : observers_) observer->begin_step();
  for (const StepRange& section : plan_.sections)
    for (int repetition = 0; repetition < section.repeat; ++repetition)
      for (int i = section.begin; i < section.end; ++i) issue(i);
  const auto slot = static_cast<std::size_t>(steps_ % options_.ring_slots);
  queues_[0]->record(*done_[slot]);
  ++steps_;
}

void Executor::issue(int index) {
  const Step& step = plan_.steps[static_cast<std::size_t>(index)];
  const Bound& bound = bound_[static_cast<std::size_t>(index)];
  Queue& queue = *queues_[static_cast<std::size_t>(step.queue)];
  for (const int event : step.waits) queue.wait(*events_[static_cast<std::size_t>(event)]);
  if (audit_ && step.what != Step::What::mark) {
    device_.synchronize();
    audit_->open(program_, plan_, step, bound.addresses);
    work(step, bound, queue);
    device_.synchronize();
    audit_->close(describe(program_, step));
  } else {
    if (step.what != Step::What::mark)
      for (Observer* observer : observers_) observer->before(index, queue);
    work(step, bound, queue);
    if (step.what != Step::What::mark)
      for (Observer* observer : observers_) observer->after(index, queue);
  }
  if (step.records >= 0) queue.record(*events_[static_cast<std::size_t>(step.records)]);
}

void Executor::work(const Step& step, const Bound& bound, Queue& queue) {
  switch (step.what) {
    case Step::What::mark:
      return;
    case Step::What::copy_out:
    case Step::What::copy_in:
      queue.copy(bound.addresses[1], bound.addresses[0],
                 plan_.places[static_cast<std::size_t>(step.places[0])].bytes);
      return;
    default:
      break;
  }
  const Op& op = program_.ops()[static_cast<std::size_t>(step.op)];
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
