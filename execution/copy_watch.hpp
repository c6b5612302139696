#pragma once

#include <string>
#include <vector>

#include "execution/clocks.hpp"
#include "execution/plan.hpp"

namespace stowage::execution {

/// Follows the copies that are under way between device and host while a plan is issued, and tells
/// where they pass the plan's CopyCaps. A copy is under way until compute has waited for it.
class CopyWatch {
 public:
  /// A copy to the host was issued.
  void left(Clocks::Node node, const std::string& module, std::size_t bytes);
  /// A copy from the host is issued. @return what is wrong, or nothing
  std::string came_back(const Clocks& clocks, const CopyCaps& caps, Clocks::Node node,
                        std::size_t bytes);
  /// A step of a queue of compute was issued; `starts` if it is an op, no mark.
  /// @return what is wrong, or nothing
  std::string computed(const Clocks& clocks, const CopyCaps& caps, Clocks::Node node, bool starts);

 private:
  struct Copy {
    Clocks::Node node;
    const std::string* module;
    std::size_t bytes;
    Clocks::Node joined{0, 0};  ///< the first step of compute behind it; position 0: none yet
  };

  std::vector<Copy> out_, in_;
};

}  // namespace stowage::execution
