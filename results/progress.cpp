#include "results/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "results/format.hpp"
#include "results/statistics.hpp"

namespace stowage::results {
namespace {

constexpr double kTerminalIntervalS = 0.1;

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_terminal(std::FILE* out) {
  if (!out || isatty(fileno(out)) != 1) return false;
  if (!std::getenv("OMPI_COMM_WORLD_RANK") && !std::getenv("PMIX_RANK")) return true;
  // A launcher gives its ranks a pseudo-terminal: what counts is where its own output goes.
  std::error_code none;
  const std::string link = "/proc/" + std::to_string(getppid()) + "/fd/1";
  const std::string target = std::filesystem::read_symlink(link, none).string();
  return target.starts_with("/dev/pts/") || target.starts_with("/dev/tty");
}

Progress::Progress(Options options)
    : options_(std::move(options)), step_{.step = options_.first_step} {}

double Progress::median_step_time_s() const { return quantile(recent_s_, 0.5); }

double Progress::left_s() const {
  return static_cast<double>(options_.last_step - step_.step) * median_step_time_s();
}

void Progress::update(const Step& step, std::string_view extra) {
  if (recent_s_.size() == kWindow) recent_s_.erase(recent_s_.begin());
  recent_s_.push_back(step.time_s);
  step_ = step;
  extra_ = extra;
  pending_ = true;
  const double interval_s = options_.terminal ? kTerminalIntervalS : options_.interval_s;
  if (options_.clock() - shown_at_ >= interval_s) show();
}

void Progress::note(std::string_view line) {
  if (!options_.out) return;
  fmt::print(options_.out, "{}{}\n", line_open_ ? "\r\x1b[K" : "", line);
  std::fflush(options_.out);
  const bool reopen = line_open_;
  line_open_ = false;
  if (reopen) show();
}

void Progress::close() {
  if (pending_) show();
  if (line_open_) {
    fmt::print(options_.out, "\n");
    std::fflush(options_.out);
    line_open_ = false;
  }
}

void Progress::show() {
  pending_ = false;
  shown_at_ = options_.clock();
  if (!options_.out) return;
  const double percent = 100.0 * static_cast<double>(step_.step) /
                         static_cast<double>(std::max<std::int64_t>(options_.last_step, 1));
  const std::string rate = si(options_.tokens_per_step / median_step_time_s());
  const std::string line = fmt::format(
      "step {}/{} {:.1f} % | loss {:.3f} | lr {:.3g} | norm {:.3g} | {} tok/s | left {}{}{}",
      step_.step, options_.last_step, percent, step_.loss, step_.lr, step_.grad_norm, rate,
      clock_time(left_s()), extra_.empty() ? "" : " | ", extra_);
  if (options_.terminal)
    fmt::print(options_.out, "\r\x1b[K{}", line);  // to column 0, clear to the end of the line
  else
    fmt::print(options_.out, "{}\n", line);
  line_open_ = options_.terminal;
  std::fflush(options_.out);
}

}  // namespace stowage::results
