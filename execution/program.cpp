#include "execution/program.hpp"

#include <algorithm>
#include <iterator>

#include "execution/error.hpp"
#include "execution/persistent.hpp"

namespace stowage::execution {
namespace {

bool same_facts(const TensorInfo& a, const TensorInfo& b) {
  if (a.lifetime != b.lifetime || a.buffers.size() != b.buffers.size()) return false;
  for (std::size_t i = 0; i < a.buffers.size(); ++i)
    if (a.buffers[i].dtype != b.buffers[i].dtype || a.buffers[i].shape != b.buffers[i].shape)
      return false;
  return true;
}

}  // namespace

ScopeGuard::~ScopeGuard() { program_->scope_ = parent_; }

Program::Program(std::string name, const PersistentLayout* layout)
    : name_(std::move(name)), layout_(layout) {
  scopes_.push_back({-1, "step", -1, -1, false});
  scope_ = 0;
}

Tensor Program::add(TensorInfo info) {
  STOWAGE_ASSERT(!info.buffers.empty(), "tensor {} has no buffer", info.name);
  if (const auto found = by_name_.find(info.name); found != by_name_.end()) {
    const TensorInfo& known = tensors_[found->second];
    STOWAGE_ASSERT(is_persistent(info.lifetime) && same_facts(known, info),
                   "program {} has a tensor {} already", name_, info.name);
    return Tensor{found->second};
  }
  if (layout_ != nullptr && layout_->is_part(info.name)) {
    const Bucket& bucket = layout_->bucket_of(info.name);
    if (bucket.name != info.name) info.whole = add(layout_->info(bucket.name));
    info.first = layout_->first_element(info.name);
  }
  const int id = static_cast<int>(tensors_.size());
  by_name_.emplace(info.name, id);
  if (info.whole) parts_[info.whole.id].push_back(id);
  tensors_.push_back(std::move(info));
  return Tensor{id};
}

Tensor Program::saved(std::string name, Dtype dtype, std::vector<std::int64_t> shape,
                      std::string module, LeadingRows rows) {
  TensorInfo info =
      one_buffer(std::move(name), dtype, std::move(shape), Lifetime::saved, std::move(module));
  info.rows = rows;
  return add(std::move(info));
}

Tensor Program::scratch(std::string name, Dtype dtype, std::vector<std::int64_t> shape) {
  return add(one_buffer(std::move(name), dtype, std::move(shape), Lifetime::scratch));
}

Tensor Program::input(std::string name, Dtype dtype, std::vector<std::int64_t> shape) {
  Op copy;
  copy.name = "stage/" + name;
  const Tensor tensor = add(one_buffer(std::move(name), dtype, std::move(shape), Lifetime::input));
  copy.lane = Lane::h2d;
  copy.uses = {{tensor, Access::write}};
  copy.cost = {0, static_cast<double>(info(tensor).bytes())};
  append(std::move(copy));
  return tensor;
}

Tensor Program::output(std::string name, Dtype dtype, std::vector<std::int64_t> shape) {
  return add(one_buffer(std::move(name), dtype, std::move(shape), Lifetime::output));
}

void Program::begin_section(std::string name, int repeat) {
  STOWAGE_ASSERT(repeat > 0, "section {} of program {} repeats {} times", name, name_, repeat);
  const int at = static_cast<int>(ops_.size());
  sections_.push_back({std::move(name), repeat, at, at});
}

ScopeGuard Program::enter(std::string_view kind, int layer, int microbatch, bool backward) {
  const int parent = scope_;
  scopes_.push_back({parent, std::string(kind), layer, microbatch, backward});
  scope_ = static_cast<int>(scopes_.size()) - 1;
  return ScopeGuard(*this, parent);
}

void Program::append(Op op) {
  STOWAGE_ASSERT(!finished_, "op {} comes after the end of program {}", op.name, name_);
  if (sections_.empty()) begin_section("prologue");
  for (const Use& use : op.uses)
    STOWAGE_ASSERT(use.tensor && use.tensor.id < static_cast<int>(tensors_.size()),
                   "op {} uses a tensor that program {} does not have", op.name, name_);
  op.scope = scope_;
  ops_.push_back(std::move(op));
  sections_.back().end = static_cast<int>(ops_.size());
}

void Program::reorder(int begin, const std::vector<int>& order) {
  STOWAGE_ASSERT(!finished_ && !sections_.empty() && begin >= sections_.back().begin &&
                     begin + order.size() == ops_.size(),
                 "ops from {} on of program {} are not all of its last section's", begin, name_);
  std::vector<int> sorted = order;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i)
    STOWAGE_ASSERT(sorted[i] == begin + static_cast<int>(i), "op {} of program {} has no place",
                   begin + static_cast<int>(i), name_);
  std::vector<Op> ops(std::make_move_iterator(ops_.begin() + begin),
                      std::make_move_iterator(ops_.end()));
  for (std::size_t i = 0; i < order.size(); ++i)
    ops_[static_cast<std::size_t>(begin) + i] = std::move(ops[order[i] - begin]);
}

void Program::finish() {
  STOWAGE_ASSERT(sections_.empty() || sections_.back().repeat == 1,
                 "the last section of program {} repeats", name_);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].lifetime != Lifetime::output) continue;
    Op copy;
    copy.name = "result/" + tensors_[i].name;
    copy.lane = Lane::d2h;
    copy.uses = {{Tensor{static_cast<int>(i)}, Access::read}};
    copy.cost = {0, static_cast<double>(tensors_[i].bytes())};
    append(std::move(copy));
  }
  finished_ = true;
}

Range Program::resolve(const Use& use) const {
  const TensorInfo& info = this->info(use.tensor);
  const std::int64_t elements = info.buffers.front().elements();
  const Range range{use.range.begin, use.range.end < 0 ? elements : use.range.end};
  STOWAGE_ASSERT(0 <= range.begin && range.begin <= range.end && range.end <= elements,
                 "elements [{}, {}) of {}, which has {}", range.begin, range.end, info.name,
                 elements);
  return range;
}

std::vector<Use> Program::uses(Tensor whole, Range range, Access access) const {
  const Range all = resolve({whole, access, range});
  const auto known = parts_.find(whole.id);
  if (known == parts_.end()) return {{whole, access, all}};
  std::vector<Range> parts;
  for (const int id : known->second) {
    const TensorInfo& info = tensors_[id];
    parts.push_back({std::max(all.begin, info.first),
                     std::min(all.end, info.first + info.buffers.front().elements())});
  }
  std::erase_if(parts, [](const Range& part) { return part.begin >= part.end; });
  std::sort(parts.begin(), parts.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Use> found;
  std::int64_t at = all.begin;
  const auto padding_until = [&](std::int64_t end) {
    if (at < end && access != Access::read) found.push_back({whole, Access::write, {at, end}});
    at = end;
  };
  for (const Range& part : parts) {
    padding_until(part.begin);
    found.push_back({whole, access, part});
    at = part.end;
  }
  padding_until(all.end);
  return found;
}

const TensorInfo& Program::info(Tensor tensor) const {
  STOWAGE_ASSERT(tensor && tensor.id < static_cast<int>(tensors_.size()),
                 "program {} has no tensor {}", name_, tensor.id);
  return tensors_[tensor.id];
}

Tensor Program::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? Tensor{} : Tensor{found->second};
}

Cost Program::cost() const {
  Cost sum;
  for (const Section& section : sections_)
    for (int i = section.begin; i < section.end; ++i) {
      const Cost& cost = ops_[i].cost;
      if (ops_[i].only_rerun) continue;
      sum = sum + static_cast<double>(section.repeat) * cost;
    }
  return sum;
}

}  // namespace stowage::execution
