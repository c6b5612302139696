#include "execution/digest.hpp"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

#include "execution/element_digest.hpp"

namespace stowage::execution {
namespace {

/// Appends to a text: `add(text, "{} {}", a, b)`.
template <class... Values>
void add(std::string& text, fmt::format_string<Values...> form, Values&&... values) {
  fmt::format_to(std::back_inserter(text), form, std::forward<Values>(values)...);
}

std::string_view name(Access access) {
  switch (access) {
    case Access::read:
      return "read";
    case Access::write:
      return "write";
    case Access::update:
      return "update";
  }
  return "?";
}

std::string_view name(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::comm:
      return "comm";
    case Lane::d2h:
      return "d2h";
    case Lane::h2d:
      return "h2d";
  }
  return "?";
}

std::string_view name(Decision decision) {
  switch (decision) {
    case Decision::keep:
      return "keep";
    case Decision::offload:
      return "offload";
    case Decision::recompute:
      return "recompute";
  }
  return "?";
}

std::string_view name(Step::What what) {
  switch (what) {
    case Step::What::run:
      return "run";
    case Step::What::rerun:
      return "rerun";
    case Step::What::copy_out:
      return "copy_out";
    case Step::What::copy_in:
      return "copy_in";
    case Step::What::mark:
      return "mark";
  }
  return "?";
}

/// The name of a tensor, or "-" for none.
std::string_view tensor_name(const Program& program, Tensor tensor) {
  return tensor ? std::string_view(program.info(tensor).name) : "-";
}

/// A tensor with its facts: "x[saved mamba_conv; payload bf16 8192,256]".
std::string tensor_text(const Program& program, const TensorInfo& info) {
  std::string text = fmt::format("{}[{} {}", info.name, name(info.lifetime), info.module);
  for (const BufferInfo& buffer : info.buffers)
    add(text, "; {} {} {}", buffer.role, name(buffer.dtype), fmt::join(buffer.shape, ","));
  if (info.rows.count)
    add(text, "; rows {} of {}", tensor_name(program, info.rows.count), info.rows.expected);
  return text + ']';
}

std::string scope_text(const Program& program, int scope) {
  if (scope < 0) return {};
  const Scope& s = program.scopes()[scope];
  return fmt::format("{}/{} layer {} microbatch {}{}", scope_text(program, s.parent), s.kind,
                     s.layer, s.microbatch, s.backward ? " backward" : "");
}

std::string text_of(const Communication& communication) {
  const Communication& c = communication;
  std::string text = fmt::format("{} {} ({}) count {} {} {}", c.kind, c.group,
                                 fmt::join(c.members, ","), c.count, name(c.dtype), c.detail);
  for (const Transfer& transfer : c.transfers)
    add(text, "; {} {} count {} {}", transfer.sends ? "to" : "from", transfer.peer, transfer.count,
        transfer.what);
  return text;
}

}  // namespace

std::uint64_t digest(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  return mix64(hash);
}

std::uint64_t digest(const OpText& op) {
  return digest(
      fmt::format("{}\n{}\n{}\n{}\n{}", op.name, op.place, op.uses, op.cost, op.communication));
}

ProgramText text_of(const Program& program) {
  ProgramText text;
  std::vector<std::string> tensors, scopes;
  for (const TensorInfo& info : program.tensors()) {
    tensors.push_back(tensor_text(program, info));
    add(text.tensors, "{} in {} from {}\n", info.name, tensor_name(program, info.whole),
        info.first);
  }
  for (std::size_t i = 0; i < program.scopes().size(); ++i)
    scopes.push_back(scope_text(program, static_cast<int>(i)));
  text.ops.reserve(program.ops().size());
  for (const Op& op : program.ops()) {
    OpText& out = text.ops.emplace_back();
    out.name = op.name;
    out.place = fmt::format("{} {}{}", name(op.lane), op.scope < 0 ? "" : scopes[op.scope],
                            op.only_rerun ? " only rerun" : "");
    for (const Use& use : op.uses) {
      add(out.uses, "{}{} {}", out.uses.empty() ? "" : ", ", name(use.access),
          tensors[use.tensor.id]);
      if (use.range != Range{}) add(out.uses, "({} to {})", use.range.begin, use.range.end);
    }
    const Cost& c = op.cost;
    out.cost =
        fmt::format("{:.12g} flops, {:.12g} bytes, {:.12g} idle, {:.12g} apart, {:.12g} more",
                    c.flops, c.bytes, c.idle_flops, c.apart_bytes, c.more_kernels);
    if (op.communication) out.communication = text_of(*op.communication);
  }
  for (const Section& section : program.sections())
    add(text.sections, "{} ops {} to {}, {} times\n", section.name, section.begin, section.end,
        section.repeat);
  return text;
}

std::uint64_t digest(const ProgramText& text) {
  std::uint64_t hash = digest(text.tensors + '\f' + text.sections);
  for (const OpText& op : text.ops) hash = mix64(hash) ^ digest(op);
  return hash;
}

std::array<std::pair<std::string_view, std::string_view>, 9> PlanText::parts() const {
  return {{{"decisions", decisions},
           {"places", places},
           {"steps", steps},
           {"events", events},
           {"sections", sections},
           {"segments", segments},
           {"queues", queues},
           {"bytes", bytes},
           {"times", times}}};
}

PlanText text_of(const Plan& plan) {
  PlanText text;
  for (const Decision decision : plan.decisions) add(text.decisions, "{}\n", name(decision));
  for (const Place& place : plan.places) {
    add(text.places, "tensor {}.{} {} {} + {}", place.tensor.id, place.buffer, name(place.region),
        place.offset, place.bytes);
    if (place.first > 0) add(text.places, " from {}", place.first);
    text.places += '\n';
  }
  for (const Step& step : plan.steps) {
    add(text.steps, "{} {} ({}) queue {}\n", name(step.what), step.op, fmt::join(step.places, ","),
        step.queue);
    add(text.events, "waits {} records {}\n", fmt::join(step.waits, ","), step.records);
  }
  add(text.events, "{} events\n", plan.events);
  for (const StepRange& section : plan.sections)
    add(text.sections, "{} to {}, {} times\n", section.begin, section.end, section.repeat);
  for (const Segment& segment : plan.segments)
    add(text.segments, "{} to {} queue {} {}\n", segment.begin, segment.end, segment.queue,
        segment.name);
  for (const QueueInfo& queue : plan.queues)
    add(text.queues, "{} {}\n", queue.name, name(queue.lane));
  add(text.queues, "at most {} copies, {} B out, {} B in\n", plan.caps.max_inflight,
      plan.caps.d2h_bytes, plan.caps.h2d_bytes);
  text.bytes = fmt::format("{}, {} live", fmt::join(plan.bytes, ","), plan.live_bytes);
  text.times = fmt::format("{:.9g} s, {:.9g} s exposed", plan.time_s, plan.exposed_s);
  return text;
}

std::uint64_t digest(const PlanText& text) {
  std::uint64_t hash = 0;
  for (const auto& [name, part] : text.parts()) hash = mix64(hash) ^ digest(part);
  return hash;
}

std::string text_of(const PersistentLayout& layout) {
  std::string text;
  for (const Bucket& bucket : layout.buckets()) {
    add(text, "{} {} {} shard {} of {} at {}{}, {} elements:", bucket.name, bucket.group,
        name(bucket.dtype), bucket.shards.held, bucket.shards.parts, bucket.offset,
        bucket.home == Region::host ? " on the host" : "", bucket.elements);
    for (const std::string& tensor : bucket.tensors) {
      add(text, " {}", tensor);
      if (layout.has(tensor)) add(text, "@{}", layout.first_element(tensor));
    }
    text += '\n';
  }
  return text;
}

}  // namespace stowage::execution
