#include "results/format.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <ctime>

namespace stowage::results {
namespace {

struct Scaled {
  double value;
  std::string_view prefix;
};

// Rounds to three significant digits first, so that 999.9 becomes 1.00 k and not 1000.
Scaled scale(double value, double base, std::string_view (*prefix_of)(int)) {
  int power = 0;
  const double size = std::abs(value);
  if (size > 0) power = static_cast<int>(std::floor(std::log(size) / std::log(base) + 1e-12));
  if (std::abs(value) / std::pow(base, power) >= 999.5 && base == 1000) ++power;
  power = std::min(std::max(power, base == 1000 ? -4 : 0), 6);
  return {value / std::pow(base, power), prefix_of(power)};
}

std::string_view si_prefix(int power) {
  static constexpr std::array<std::string_view, 11> kPrefixes = {"p", "n", "u", "m", "", "k",
                                                                 "M", "G", "T", "P", "E"};
  return kPrefixes[power + 4];
}

std::string_view binary_prefix(int power) {
  static constexpr std::array<std::string_view, 7> kPrefixes = {"",   "Ki", "Mi", "Gi",
                                                                "Ti", "Pi", "Ei"};
  return kPrefixes[power];
}

std::string three_digits(double value) {
  const double size = std::abs(value);
  if (value == std::round(value) && size < 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace

std::string si(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const Scaled scaled = scale(value, 1000, si_prefix);
  if (scaled.prefix.empty()) return three_digits(scaled.value);
  return three_digits(scaled.value) + " " + std::string(scaled.prefix);
}

std::string quantity(double value, std::string_view unit) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (unit == "B") {
    const Scaled scaled = scale(value, 1024, binary_prefix);
    return fmt::format("{} {}B", three_digits(scaled.value), scaled.prefix);
  }
  if (unit == "1") return fmt::format("{:.6g}", value);
  if (unit == "nat" || unit == "nat/token") return fmt::format("{:.4f} {}", value, unit);
  std::string text = si(value);
  if (unit == "1/s") return text + "/s";
  if (text.find(' ') == std::string::npos) text += ' ';
  return text + std::string(unit);
}

std::string clock_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "--:--";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string exact(double value) { return fmt::format("{}", value); }

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     since.count() % 1000);
}

}  // namespace stowage::results
