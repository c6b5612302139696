#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace stowage::ctest {

/// True where a limit of address space tells something: a sanitizer ends a process that meets one.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kLimitsTell = false;
#else
inline constexpr bool kLimitsTell = true;
#endif

/// Leaves this process room for `mib` beside the address space that it has.
inline void leave_room(rlim_t mib) {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (mib << 20);
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_AS, &limit);
}

/// Runs `f` in a child and returns the code that it gives; -1 if the child has not ended in 30 s.
template <class F>
int in_child(F&& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(f());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace stowage::ctest
