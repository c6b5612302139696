#include "parallel/proof/trace_bytes.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "execution/error.hpp"

namespace stowage::parallel {
namespace {

/// Appends numbers, seven bits a byte with the lowest first, and texts.
class Writer {
 public:
  void number(std::uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_.push_back(static_cast<char>(value | 128));
    bytes_.push_back(static_cast<char>(value));
  }
  /// Near zero is short: 0, -1, 1, -2, …
  void difference(std::int64_t value) {
    number((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
  }
  template <class T>
  void size(const std::vector<T>& list) {
    number(list.size());
  }
  void text(std::string_view text) {
    number(text.size());
    bytes_ += text;
  }
  /// A text as what it shares with `before`, and the rest.
  void text_after(std::string_view text, std::string_view before) {
    const auto end = std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first;
    const auto shared = static_cast<std::size_t>(end - text.begin());
    number(shared);
    this->text(text.substr(shared));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Takes them back in the same order.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= static_cast<std::uint64_t>(byte & 127U) << shift;
      if (byte < 128) return value;
    }
    broken();
  }
  std::int64_t difference() {
    const std::uint64_t value = number();
    return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  int integer() {
    const std::uint64_t value = number();
    if (!std::in_range<int>(value)) broken();
    return static_cast<int>(value);
  }
  /// A number of things that take a byte each at least.
  std::size_t size() {
    const std::uint64_t value = number();
    if (value > left_.size()) broken();
    return static_cast<std::size_t>(value);
  }
  std::string text() { return std::string(take(size())); }
  std::string text_after(std::string_view before) {
    const std::uint64_t shared = number();
    if (shared > before.size()) broken();
    return std::string(before.substr(0, static_cast<std::size_t>(shared))) + text();
  }
  std::string_view take(std::size_t bytes) {
    if (bytes > left_.size()) broken();
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }
  std::string_view left() const { return left_; }
  void finish() const {
    if (!left_.empty()) broken();
  }

  [[noreturn]] static void broken() {
    throw execution::Error(execution::Exit::runtime,
                           "the bytes of a communication trace are broken");
  }

 private:
  std::string_view left_;
};

const TracedOp kNone;

void write_op(Writer& writer, const TracedOp& op, const TracedOp& before) {
  writer.text_after(op.name, before.name);
  writer.number(static_cast<std::uint64_t>(op.group));
  writer.text_after(op.kind, before.kind);
  writer.difference(op.count);
  writer.number(static_cast<std::uint64_t>(op.dtype));
  writer.text_after(op.detail, before.detail);
  writer.size(op.transfers);
  for (const execution::Transfer& transfer : op.transfers) {
    writer.difference(transfer.peer);
    writer.number(transfer.sends);
    writer.difference(transfer.count);
    writer.text(transfer.what);
  }
}

TracedOp read_op(Reader& reader, const TracedOp& before) {
  TracedOp op;
  op.name = reader.text_after(before.name);
  op.group = reader.integer();
  op.kind = reader.text_after(before.kind);
  op.count = reader.difference();
  op.dtype = static_cast<execution::Dtype>(reader.integer());
  op.detail = reader.text_after(before.detail);
  for (std::size_t left = reader.size(); left > 0; --left) {
    execution::Transfer& transfer = op.transfers.emplace_back();
    transfer.peer = static_cast<int>(reader.difference());
    transfer.sends = reader.number() != 0;
    transfer.count = reader.difference();
    transfer.what = reader.text();
  }
  return op;
}

void write_program(Writer& writer, const TracedProgram& program) {
  writer.text(program.name);
  writer.size(program.ops);
  const TracedOp* before = &kNone;
  for (const TracedOp& op : program.ops) write_op(writer, op, *std::exchange(before, &op));
  writer.size(program.calls);
  int last = -1;
  for (const int call : program.calls) writer.difference(call - std::exchange(last, call) - 1);
  writer.size(program.edges);
  last = 0;
  for (const TracedEdge& edge : program.edges) {
    writer.difference(edge.after - std::exchange(last, edge.after));
    writer.difference(edge.after - edge.before);
  }
  writer.size(program.loose);
  last = 0;
  for (const int call : program.loose) writer.difference(call - std::exchange(last, call));
}

TracedProgram read_program(Reader& reader) {
  TracedProgram program;
  program.name = reader.text();
  const std::size_t ops = reader.size();
  for (std::size_t i = 0; i < ops; ++i)
    program.ops.push_back(read_op(reader, i == 0 ? kNone : program.ops.back()));
  // A sum of differences that is taken as a place of a list has to be one.
  const auto place = [](std::int64_t value, std::size_t end) {
    if (value < 0 || value >= static_cast<std::int64_t>(end)) Reader::broken();
    return static_cast<int>(value);
  };
  std::int64_t last = -1;
  for (std::size_t left = reader.size(); left > 0; --left)
    program.calls.push_back(place(last += reader.difference() + 1, ops));
  last = 0;
  for (std::size_t left = reader.size(); left > 0; --left) {
    last += reader.difference();
    const std::int64_t before = last - reader.difference();
    program.edges.push_back(
        {place(before, program.calls.size()), place(last, program.calls.size())});
  }
  last = 0;
  for (std::size_t left = reader.size(); left > 0; --left)
    program.loose.push_back(place(last += reader.difference(), program.calls.size()));
  return program;
}

}  // namespace

std::string to_bytes(const RankTrace& trace) {
  Writer writer;
  writer.number(static_cast<std::uint64_t>(trace.rank));
  writer.size(trace.groups);
  for (const TracedGroup& group : trace.groups) {
    writer.text(group.name);
    writer.size(group.members);
    int last = -1;
    for (const int member : group.members)
      writer.difference(member - std::exchange(last, member) - 1);
  }
  writer.size(*trace.programs);
  for (const TracedProgram& program : *trace.programs) write_program(writer, program);
  return writer.take();
}

std::vector<RankTrace> from_bytes(std::span<const std::string> ranks) {
  std::vector<RankTrace> traces;
  std::unordered_map<std::string_view, std::shared_ptr<const std::vector<TracedProgram>>> known;
  for (const std::string& bytes : ranks) {
    Reader reader(bytes);
    RankTrace& trace = traces.emplace_back();
    trace.rank = reader.integer();
    for (std::size_t left = reader.size(); left > 0; --left) {
      TracedGroup& group = trace.groups.emplace_back();
      group.name = reader.text();
      std::int64_t last = -1;
      for (std::size_t members = reader.size(); members > 0; --members)
        group.members.push_back(static_cast<int>(last += reader.difference() + 1));
    }
    auto& programs = known[reader.left()];
    if (!programs) {
      std::vector<TracedProgram> list;
      for (std::size_t left = reader.size(); left > 0; --left) list.push_back(read_program(reader));
      reader.finish();
      programs = std::make_shared<const std::vector<TracedProgram>>(std::move(list));
    }
    trace.programs = programs;
    for (const TracedProgram& program : *programs)
      for (const TracedOp& op : program.ops)
        if (op.group >= static_cast<int>(trace.groups.size())) Reader::broken();
  }
  return traces;
}

}  // namespace stowage::parallel
