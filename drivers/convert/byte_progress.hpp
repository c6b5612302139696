#pragma once

#include <cstdint>

namespace stowage::drivers {

/// How far a long copy is, on stderr: a line that updates itself on a terminal, now and then a line
/// in a log; nothing of a copy that is done within the first interval.
class ByteProgress {
 public:
  explicit ByteProgress(std::int64_t total);
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  void add(std::int64_t bytes);

 private:
  void show();

  std::int64_t total_;
  std::int64_t done_ = 0;
  bool terminal_;
  bool open_ = false;
  double start_s_;
  double shown_at_s_;
};

}  // namespace stowage::drivers
