#pragma once

#include <vector>

#include "execution/plan.hpp"

namespace stowage::offload {

/// Takes the mark of the join and the carried copies behind it (execution::first_carried) from the
/// end of a plan, and puts them back: what is done to the steps of a plan between is done to those
/// that its join waits for.
std::vector<execution::Step> take_carried(execution::Plan& plan);
void put_back(execution::Plan& plan, std::vector<execution::Step> carried);

}  // namespace stowage::offload
