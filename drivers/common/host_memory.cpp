#include "drivers/common/host_memory.hpp"

#include <unistd.h>

#include "execution/error.hpp"

namespace stowage::drivers {

void require_host_memory(std::size_t bytes) {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return;  // the system does not say
  const std::size_t host = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes);
  constexpr double kGiB = 1 << 30;
  if (bytes > host)
    execution::throw_environment("a rank needs {:.2f} GiB of host memory, this host has {:.2f} GiB",
                                 static_cast<double>(bytes) / kGiB,
                                 static_cast<double>(host) / kGiB);
}

}  // namespace stowage::drivers
