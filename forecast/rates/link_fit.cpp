#include "forecast/rates/link_fit.hpp"

#include <algorithm>
#include <cstddef>

#include "execution/error.hpp"

namespace stowage::forecast {

std::optional<offload::Link> fit_link(std::span<const double> bytes,
                                      std::span<const double> time_s) {
  STOWAGE_ASSERT(bytes.size() == time_s.size(), "{} sizes and {} times", bytes.size(),
                 time_s.size());
  if (bytes.size() < 3) return std::nullopt;
  // The normal equations of latency u + slope v = 1, where u = 1 / time and v = bytes / time.
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double u = 1 / time_s[i], v = bytes[i] / time_s[i];
    uu += u * u, uv += u * v, vv += v * v, u1 += u, v1 += v;
  }
  const double determinant = uu * vv - uv * uv;
  const double latency_s = (u1 * vv - v1 * uv) / determinant;
  const double slope = (v1 * uu - u1 * uv) / determinant;
  if (!(latency_s > 0 && slope > 0)) return std::nullopt;
  return offload::Link{latency_s, 1 / slope};
}

double worst_factor(const offload::Link& link, std::span<const double> bytes,
                    std::span<const double> time_s) {
  double worst = 1;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double quotient = (link.latency_s + bytes[i] / link.bytes_per_s) / time_s[i];
    worst = std::max({worst, quotient, 1 / quotient});
  }
  return worst;
}

}  // namespace stowage::forecast
