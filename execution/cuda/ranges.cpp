#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "execution/cuda_ranges.hpp"

namespace stowage::execution {
namespace {

class NvtxRanges final : public Observer {
 public:
  NvtxRanges(const Program& program, const Plan& plan) {
    for (const Step& step : plan.steps) names_.push_back(describe(program, step));
  }

  bool sees_ops() const override { return false; }
  void before(int index, Queue&) override { (void)nvtxRangePushA(names_[index].c_str()); }
  void after(int, Queue&) override { (void)nvtxRangePop(); }

 private:
  std::vector<std::string> names_;  ///< by step of the plan
};

}  // namespace

std::unique_ptr<Observer> make_nvtx_ranges(const Program& program, const Plan& plan) {
  return std::make_unique<NvtxRanges>(program, plan);
}

}  // namespace stowage::execution
