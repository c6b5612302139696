#pragma once

#include <fmt/core.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace stowage::execution {

/// Process exit codes of every driver; a batch script may act on them.
enum class Exit : int {
  valid = 0,        ///< the run is valid
  invalid = 1,      ///< the run ended, a validation failed
  usage = 2,        ///< command line, deck or data file
  environment = 3,  ///< no GPU, too little memory, wrong rank count for the machine
  runtime = 4,      ///< a call failed while running
  stopped = 75      ///< stopped by a signal after a checkpoint: submit again
};

/// The one error type of the suite: what happened, and the exit code that it leads to.
class Error : public std::runtime_error {
 public:
  Error(Exit exit, const std::string& message) : std::runtime_error(message), exit_(exit) {}

  /// The exit code of the program that this error ends.
  Exit exit() const noexcept { return exit_; }

 private:
  Exit exit_;
};

/// Throws an Error for a failed library call: names the library, the call, its code and the place.
[[noreturn]] void throw_call_failed(std::string_view library, std::string_view call, long long code,
                                    std::string_view text, std::source_location at);

/// Throws an Error for a broken invariant of our own.
[[noreturn]] void throw_broken_invariant(std::string_view condition, const std::string& message,
                                         std::source_location at);

/// The rank that error messages name; set once by `parallel/` after MPI starts.
void set_error_rank(int rank, std::string host);

/// "rank 3 (host n017): " once a rank is set, else empty.
std::string error_prefix();

/// Throws what the user has to mend (exit code 2): say what was given, what is allowed, which key.
template <class... Args>
[[noreturn]] void throw_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Exit::usage, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws what the machine lacks (exit code 3).
template <class... Args>
[[noreturn]] void throw_environment(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Exit::environment, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace stowage::execution

/// Checks an invariant of ours; the message is a format string with its arguments.
#define STOWAGE_ASSERT(condition, ...)                                                     \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      ::stowage::execution::throw_broken_invariant(#condition, ::fmt::format(__VA_ARGS__), \
                                                   std::source_location::current());       \
  } while (false)
