#pragma once

#include <string>
#include <string_view>

#include "layers/recording/recorder.hpp"

/// What ops that write a tensor do for the products of 8 bits that take it: they find its largest
/// magnitude beside, and leave it to the products what of it is kept for backward.
namespace stowage::layers {

/// What the products that take a tensor do with it.
enum class Rounding : unsigned char {
  none,      ///< they take its values
  measured,  ///< they round it, with its largest magnitude
  saved      ///< and so does all of backward that needs it: one of them saves its payload
};

/// A tensor that backward needs: saved, or scratch that a product saves the payload of.
Tensor saved(Recorder& recorder, Rounding rounding, std::string_view name,
             std::vector<std::int64_t> shape, std::string_view module);
/// Has the product that takes what an activation makes of x save its payload: then it is not made
/// again in backward.
void save_activated(Recorder& recorder, Tensor x, std::string_view module);
/// The module of such a payload; empty: it is not saved.
std::string_view module_of_payload(Recorder& recorder, Tensor x, bool activated);

/// The output (1) of the op that writes `x` for its largest magnitude, or of what an activation
/// makes of x.
Tensor measure(Recorder& recorder, Tensor x, bool activated = false);
/// The same, or none if nobody rounds x.
inline Tensor measure(Recorder& recorder, Rounding rounding, Tensor x) {
  return rounding == Rounding::none ? Tensor{} : measure(recorder, x);
}
/// What measure() gave, or none.
Tensor magnitude(Recorder& recorder, Tensor x, bool activated);

/// A tensor that products of 8 bits take as it is.
bool is_payload(Recorder& recorder, Tensor x);
/// The tensor whose second buffer is the scale of a payload: the payload's own, or that of this
/// rank's part of it.
Tensor scale_of(Recorder& recorder, Tensor payload);
/// Says that `all` has the parts of several ranks, which have the scale of this rank's `part`.
void share_scale(Recorder& recorder, Tensor part, Tensor all);

/// Tensors that belong to one whose rows go to other ranks in 8 bits; none at first.
struct SharedRounding {
  Tensor magnitudes;  ///< (ranks) of the parts that ranks have, accum
  Tensor payload;     ///< of this rank's part, with the scale of all
  Tensor transposed;  ///< of a payload: its transpose
};
SharedRounding& shared_rounding(Recorder& recorder, Tensor x);

}  // namespace stowage::layers
