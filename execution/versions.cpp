#include "execution/versions.hpp"

#include <algorithm>

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
  uses_.clear();
  const Program& current = *programs_[program];
  first_use_.assign(current.ops().size(), {});
  for (const Section& section : current.sections())
    for (int period = 0; period < std::min(section.repeat, 2); ++period)
      for (int i = section.begin; i < section.end; ++i) {
        first_use_[i].push_back(uses_.size());
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

/// All uses of an op see what was there before it. The values of a tensor of several buffers are
/// those of its first: they are written together.
void Versions::follow(const Op& op) {
  const Program& current = *programs_[program_];
  const std::size_t first = uses_.size();
  const auto place = [&](const Use& use) {
    const Bytes bytes = bytes_of(current, use, 0);
    const std::size_t begin = contents_.first_byte(program_, use.tensor);
    return Bytes{begin + bytes.begin, begin + bytes.end};
  };
  for (const Use& use : op.uses) {
    const Span now = find(contents_.of(program_, use.tensor, 0), place(use));
    uses_.push_back({now, now});
  }
  for (std::size_t u = 0; u < op.uses.size(); ++u)
    if (op.uses[u].access != Access::read && !op.only_rerun)
      uses_[first + u].written =
          write(contents_.of(program_, op.uses[u].tensor, 0), place(op.uses[u]));
}

std::span<const Versions::Value> Versions::now(int program, Tensor tensor, Bytes bytes) {
  const std::size_t begin = contents_.first_byte(program, tensor);
  return values(find(contents_.of(program, tensor, 0), {begin + bytes.begin, begin + bytes.end}));
}

const Versions::UseValues& Versions::at(int op, std::size_t use, int repetition) const {
  const std::vector<std::size_t>& periods = first_use_[op];
  const std::size_t period = std::min(static_cast<std::size_t>(repetition), periods.size() - 1);
  return uses_[periods[period] + use];
}

std::span<const Versions::Value> Versions::read(int op, std::size_t use, int repetition) const {
  return values(at(op, use, repetition).read);
}

std::span<const Versions::Value> Versions::written(int op, std::size_t use, int repetition) const {
  return values(at(op, use, repetition).written);
}

}  // namespace stowage::execution
