#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// How numbers are shown to people. Files hold SI base units; only the console scales them.
namespace stowage::results {

/// "21.9 k", "704 T", "3.12 m", "0", with three significant digits and an SI prefix.
std::string si(double value);

/// `si` with a unit: "21.9 k1/s" never occurs: "1" and "1/s" become "21.9 k" and "21.9 k/s".
/// Bytes are shown in binary units: "55.5 GiB".
std::string quantity(double value, std::string_view unit);

/// "mm:ss" below an hour, "h:mm:ss" above; "--:--" for what is not known.
std::string clock_time(double seconds);

/// The shortest decimal that reads back as the same double; "nan" for NaN.
std::string exact(double value);

/// The moment as ISO 8601 in UTC, to the millisecond: "2031-05-04T12:00:00.000Z".
std::string utc_now();

}  // namespace stowage::results
