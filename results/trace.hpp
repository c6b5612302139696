#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "results/part_file.hpp"

namespace stowage::results {

/// What ranks did, or are expected to do, in a step: bars on their queues. Written as a Chrome
/// trace (chrome://tracing, Perfetto, tools/plot_timeline.py).
class Trace {
 public:
  struct Bar {
    int rank = 0;
    int queue = 0;  ///< by which name_queue() knows it
    std::string name;
    double begin_s = 0;  ///< since the begin of the step, or as start_at_zero() says
    double time_s = 0;
  };

  void name_queue(int rank, int queue, std::string name) {
    queues_.push_back({rank, queue, std::move(name)});
  }
  void add(Bar bar) { bars_.push_back(std::move(bar)); }
  /// Adds what another rank has, as text() of its trace.
  void add(const std::string& text);
  std::string text() const;
  /// Bars of one clock become those since the begin of the first of them.
  void start_at_zero();

  /// Writes and commits the file. @param option what it is in messages: "--trace"
  /// @throws Error (exit 4) if it cannot be written
  void write(PartFile& part, std::string_view option) const;

 private:
  struct QueueName {
    int rank = 0;
    int queue = 0;
    std::string name;
  };

  std::vector<QueueName> queues_;
  std::vector<Bar> bars_;
};

}  // namespace stowage::results
