#include "execution/versions.hpp"

#include <algorithm>
#include <iterator>

namespace stowage::execution {

Versions::Versions(std::span<const Program* const> programs, const Contents& contents)
    : programs_(programs), contents_(contents) {
  std::size_t end = 0;
  for (int content = 0; content < contents.count(); ++content) {
    base_.push_back(end);
    end += contents.bytes(content);
  }
}

void Versions::execute(int program) {
  program_ = program;
  values_.clear();
  operands_.clear();
  const Program& current = *programs_[program];
  first_operand_.assign(current.ops().size(), {});
  for (const Section& section : current.sections())
    for (int period = 0; period < std::min(section.repeat, 2); ++period)
      for (int i = section.begin; i < section.end; ++i) {
        first_operand_[i].push_back(operands_.size());
        follow(current.ops()[i]);
      }
}

Versions::Span Versions::find(int content, Bytes bytes) {
  const std::size_t first = values_.size();
  const std::size_t base = base_[content];
  std::size_t at = bytes.begin;
  const auto add = [&](std::size_t until, std::int64_t version) {
    if (at < until) values_.push_back({at, until, version});
    at = until;
  };
  order_.inspect(base + bytes.begin, base + bytes.end,
                 [&](std::size_t begin, std::size_t end, const auto& range) {
                   add(begin - base, 0);
                   add(end - base, range.content);
                 });
  add(bytes.end, 0);
  return {first, values_.size()};
}

Versions::Span Versions::write(int content, Bytes bytes) {
  const std::size_t base = base_[content];
  order_.write(base + bytes.begin, base + bytes.end, ++writes_, {});
  values_.push_back({bytes.begin, bytes.end, writes_});
  return {values_.size() - 1, values_.size()};
}

/// All uses of an op see what was there before it.
void Versions::follow(const Op& op) {
  const Program& current = *programs_[program_];
  const auto for_each_buffer = [&](auto&& visit) {
    for (const Use& use : op.uses)
      for (int b = 0; b < std::ssize(current.info(use.tensor).buffers); ++b) {
        const Bytes bytes = bytes_of(current, use, b);
        const std::size_t begin = contents_.first_byte(program_, use.tensor);
        visit(use, contents_.of(program_, use.tensor, b),
              Bytes{begin + bytes.begin, begin + bytes.end});
      }
  };
  std::size_t next = operands_.size();
  for_each_buffer([&](const Use&, int content, Bytes bytes) {
    const Span now = find(content, bytes);
    operands_.push_back({now, now});
  });
  for_each_buffer([&](const Use& use, int content, Bytes bytes) {
    if (use.access != Access::read && !op.only_rerun)
      operands_[next].written = write(content, bytes);
    ++next;
  });
}

std::span<const Versions::Value> Versions::now(int program, Tensor tensor, Bytes bytes) {
  const std::size_t begin = contents_.first_byte(program, tensor);
  return values(find(contents_.of(program, tensor, 0), {begin + bytes.begin, begin + bytes.end}));
}

const Versions::OperandValues& Versions::at(int op, std::size_t operand, int repetition) const {
  const std::vector<std::size_t>& periods = first_operand_[op];
  const std::size_t period = std::min(static_cast<std::size_t>(repetition), periods.size() - 1);
  return operands_[periods[period] + operand];
}

std::span<const Versions::Value> Versions::read(int op, std::size_t operand, int repetition) const {
  return values(at(op, operand, repetition).read);
}

std::span<const Versions::Value> Versions::written(int op, std::size_t operand,
                                                   int repetition) const {
  return values(at(op, operand, repetition).written);
}

}  // namespace stowage::execution
