#include "drivers/convert/byte_progress.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "results/format.hpp"
#include "results/progress.hpp"

namespace stowage::drivers {

ByteProgress::ByteProgress(std::int64_t total)
    : total_(total),
      terminal_(results::is_terminal(stderr)),
      start_s_(results::steady_seconds()),
      shown_at_s_(start_s_) {}

ByteProgress::~ByteProgress() {
  if (open_) std::fputc('\n', stderr);
}

void ByteProgress::add(std::int64_t bytes) {
  done_ += bytes;
  const double now_s = results::steady_seconds();
  if (now_s - shown_at_s_ < (terminal_ ? 0.5 : 10)) return;
  shown_at_s_ = now_s;
  show();
}

void ByteProgress::show() {
  const double seconds = shown_at_s_ - start_s_;
  const double share =
      static_cast<double>(done_) / static_cast<double>(std::max<std::int64_t>(total_, 1));
  const std::string line =
      fmt::format("{}# {:.0f} % of {:.2f} GB, {:.2f} GB/s{}", open_ ? "\r" : "", 100 * share,
                  static_cast<double>(total_) / 1e9, static_cast<double>(done_) / 1e9 / seconds,
                  terminal_ ? "" : "\n");
  std::fputs(line.c_str(), stderr);  // progress that cannot be shown ends nothing
  open_ = terminal_;
}

}  // namespace stowage::drivers
