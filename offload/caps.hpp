#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::offload {

/// Adds to a plan under construction the joins that its CopyCaps ask for, as marks of queue 0 that
/// wait for a copy. Each queue of copies is in order, so one join covers all earlier copies.
class CapGuard {
 public:
  CapGuard(const execution::Program& program, execution::Plan& plan)
      : program_(program), plan_(plan) {}

  /// The last step is a copy to the host.
  void left();
  /// A copy from the host is about to be added, as the next step but for joins.
  /// @return the event that it must wait for, or -1
  int before_copy_back(std::size_t bytes);
  /// The last step is a copy from the host.
  void came_back();
  /// The next step of compute waits for this copy from the host, and so for its copy to the host.
  void needed(int copy_out, int copy_in);
  /// A step of compute is about to be added, its own waits noted.
  void before_compute();
  /// All copies of a section have been waited for.
  void end_of_section();

 private:
  struct Copy {
    int step;
    std::size_t bytes;
    const std::string* module;
  };
  using Copies = std::vector<Copy>;

  Copy last_step() const;
  int record(int step);
  void join(Copies& copies, std::size_t count);
  static std::size_t bytes_of(const Copies& copies);

  const execution::Program& program_;
  execution::Plan& plan_;
  Copies out_, in_;  ///< under way, oldest first
};

}  // namespace stowage::offload
