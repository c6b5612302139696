#include "execution/error.hpp"

namespace stowage::execution {
namespace {

struct Place {
  int rank = -1;
  std::string host;
};

Place& place() {
  static Place instance;
  return instance;
}

}  // namespace

void set_error_rank(int rank, std::string host) { place() = {rank, std::move(host)}; }

std::string error_prefix() {
  if (place().rank < 0) return {};
  return fmt::format("rank {} (host {}): ", place().rank, place().host);
}

void throw_call_failed(std::string_view library, std::string_view call, long long code,
                       std::string_view text, std::source_location at) {
  throw Error(Exit::runtime, fmt::format("{} call {} failed with code {}{}{} at {}:{} in {}",
                                         library, call, code, text.empty() ? "" : ": ", text,
                                         at.file_name(), at.line(), at.function_name()));
}

void throw_broken_invariant(std::string_view condition, const std::string& message,
                            std::source_location at) {
  throw Error(Exit::runtime, fmt::format("{} (broken: {}) at {}:{} in {}", message, condition,
                                         at.file_name(), at.line(), at.function_name()));
}

}  // namespace stowage::execution
