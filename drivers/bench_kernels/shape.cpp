#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "drivers/bench_kernels/case.hpp"
#include "execution/error.hpp"

namespace stowage::drivers::bench {

std::int64_t Shape::operator[](const std::string& name) const {
  for (const auto& [key, value] : sizes_)
    if (key == name) return value;
  execution::throw_usage("--shape: no size '{}' here; there are {}", name, text());
}

void Shape::set(const std::string& name, std::int64_t value) {
  for (auto& [key, held] : sizes_)
    if (key == name) {
      held = value;
      return;
    }
  execution::throw_usage("--shape: no size '{}' here; there are {}", name, text());
}

std::string Shape::text() const {
  std::string made;
  for (const auto& [key, value] : sizes_)
    made += fmt::format("{}{}={}", made.empty() ? "" : ",", key, value);
  return made;
}

std::string Shape::tag() const {
  std::string made;
  for (const auto& [key, value] : sizes_)
    made += fmt::format("{}{}{}", made.empty() ? "" : "_", key, value);
  return made;
}

Shape Shape::with(const std::string& text) const {
  Shape made = *this;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const std::size_t equals = part.find('=');
    std::int64_t value = -1;
    if (equals != std::string::npos) {
      const char* last = part.data() + part.size();
      const auto [stop, code] = std::from_chars(part.data() + equals + 1, last, value);
      if (code != std::errc() || stop != last) value = -1;
    }
    if (value < 0) execution::throw_usage("--shape: '{}' is not SIZE=NUMBER", part);
    made.set(part.substr(0, equals), value);
    at = end + 1;
  }
  return made;
}

void on_host(const std::function<void()>& reference) {
  const auto backend = execution::make_host_backend();
  const auto queue = backend->make_queue(execution::Lane::compute, "reference");
  queue->enqueue(reference);
  queue->synchronize();
}

}  // namespace stowage::drivers::bench
