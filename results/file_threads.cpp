#include "results/file_threads.hpp"

#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace stowage::results {

std::optional<std::size_t> Turns::next() {
  const std::size_t turn = next_++;
  return turn < count_ ? std::optional(turn) : std::nullopt;
}

void on_threads(int threads, Turns& turns, const std::function<void(int thread)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(threads));
  const auto run = [&](int thread) {
    try {
      body(thread);
    } catch (...) {
      errors[static_cast<std::size_t>(thread)] = std::current_exception();
      turns.stop();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
    } catch (const std::system_error&) {  // then those there are do it
    }
    run(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace stowage::results
