#pragma once

#include "inputs/deck/layer_kinds.hpp"

namespace stowage::inputs {

/// What heads of further tokens save beside their layers.
inline constexpr Module kMtpModule{
    "mtp_norm",
    "of each depth of further tokens: embedding, last sum and its norm (n, D), rstd (n)"};

}  // namespace stowage::inputs
