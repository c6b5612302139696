#include "run/machine/host_memory.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <limits>

#include "execution/error.hpp"
#include "forecast/plan/memory_table.hpp"

namespace stowage::run {

std::size_t host_memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes);
}

void require_host_memory(std::size_t bytes, std::size_t copy) {
  const std::size_t host = host_memory_bytes();
  if (bytes <= host) return;
  std::string of_copy;
  if (bytes - copy <= host)
    of_copy = fmt::format(
        ", {} bytes of them for the copy of the state that checkpoint.copy asks for; \"none\" does "
        "without",
        copy);
  execution::throw_environment("a rank needs {:.2f} GiB of host memory, this host has {:.2f} GiB{}",
                               forecast::gib(bytes), forecast::gib(host), of_copy);
}

}  // namespace stowage::run
