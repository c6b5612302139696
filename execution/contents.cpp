#include "execution/contents.hpp"

namespace stowage::execution {
namespace {

std::size_t first_byte_of(const TensorInfo& info) {
  return static_cast<std::size_t>(info.first) * size_bytes(info.buffers.front().dtype);
}

}  // namespace

Bytes bytes_of(const Program& program, const Use& use, int buffer) {
  const BufferInfo& info = program.info(use.tensor).buffers[buffer];
  if (use.range == Range{} || buffer > 0) return {0, info.bytes()};
  const Range range = program.resolve(use);
  return {static_cast<std::size_t>(range.begin) * size_bytes(info.dtype),
          static_cast<std::size_t>(range.end) * size_bytes(info.dtype)};
}

Bytes bytes_at(const Program& program, const Use& use, const Place& place) {
  const Bytes bytes = bytes_of(program, use, place.buffer);
  return {place.offset + bytes.begin - place.first, place.offset + bytes.end - place.first};
}

std::size_t origin_of(const Program& program, const Place& place) {
  return place.offset - place.first - first_byte_of(program.info(place.tensor));
}

Contents::Contents(std::span<const Program* const> programs) {
  std::map<std::string, int> persistent;
  const auto add = [&](const TensorInfo& info) {
    const int content = count();
    for (const BufferInfo& buffer : info.buffers) {
      names_.push_back(info.name);
      bytes_.push_back(buffer.bytes());
    }
    return content;
  };
  for (const Program* program : programs) {
    std::vector<First>& firsts = firsts_.emplace_back();
    for (const TensorInfo& info : program->tensors()) {  // a whole comes before its parts
      if (info.whole) {
        firsts.push_back({firsts[info.whole.id].content, first_byte_of(info)});
      } else if (!is_persistent(info.lifetime)) {
        firsts.push_back({add(info), 0});
      } else {
        const auto [found, added] = persistent.emplace(info.name, count());
        if (added) add(info);
        firsts.push_back({found->second, 0});
      }
    }
  }
}

int Contents::of(int program, Tensor tensor, int buffer) const {
  return first(program, tensor).content + buffer;
}

std::size_t Contents::first_byte(int program, Tensor tensor) const {
  return first(program, tensor).first_byte;
}

}  // namespace stowage::execution
