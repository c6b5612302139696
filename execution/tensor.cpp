#include "execution/tensor.hpp"

#include <utility>

namespace stowage::execution {

std::string_view name(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::parameter:
      return "parameter";
    case Lifetime::gradient:
      return "gradient";
    case Lifetime::optimizer_state:
      return "optimizer_state";
    case Lifetime::sequence_state:
      return "sequence_state";
    case Lifetime::saved:
      return "saved";
    case Lifetime::scratch:
      return "scratch";
    case Lifetime::input:
      return "input";
    case Lifetime::output:
      return "output";
  }
  return "?";
}

std::int64_t BufferInfo::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::size_t BufferInfo::bytes() const {
  return static_cast<std::size_t>(elements()) * size_bytes(dtype);
}

std::size_t TensorInfo::bytes() const {
  std::size_t sum = 0;
  for (const BufferInfo& buffer : buffers) sum += buffer.bytes();
  return sum;
}

bool TensorInfo::counts_rows() const {
  const std::int64_t room = buffers.front().shape.front();
  return rows.count && room > 0 && room >= kCountedRoom * rows.expected;
}

std::size_t TensorInfo::moved_bytes(int buffer) const {
  const BufferInfo& info = buffers[buffer];
  if (!counts_rows()) return info.bytes();
  const std::size_t row = info.bytes() / static_cast<std::size_t>(info.shape.front());
  return row * static_cast<std::size_t>(rows.expected);
}

TensorInfo one_buffer(std::string name, Dtype dtype, std::vector<std::int64_t> shape,
                      Lifetime lifetime, std::string module) {
  TensorInfo info;
  info.name = std::move(name);
  info.buffers.push_back({"payload", dtype, std::move(shape)});
  info.lifetime = lifetime;
  info.module = std::move(module);
  return info;
}

}  // namespace stowage::execution
