#pragma once

#include <fmt/core.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace stowage::ctest {

/// What a job of several ranks said, and how it ended.
struct JobOutcome {
  int code = -1;
  std::string output;

  /// How often `part` is in the output.
  int count(const std::string& part) const {
    int found = 0;
    for (std::size_t at = output.find(part); at != std::string::npos;
         at = output.find(part, at + 1))
      ++found;
    return found;
  }
};

/// Runs a program with its arguments on some ranks; code 124 means that it hung.
/// @param mpirun the command that starts ranks
inline JobOutcome run_ranks(const std::string& mpirun, int ranks, const std::string& program) {
  const std::string command = fmt::format("timeout 30 {} -np {} {} 2>&1", mpirun, ranks, program);
  JobOutcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), static_cast<int>(part.size()), pipe) != nullptr)
    outcome.output += part.data();
  outcome.code = WEXITSTATUS(::pclose(pipe));
  return outcome;
}

}  // namespace stowage::ctest
