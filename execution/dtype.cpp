#include "execution/dtype.hpp"

#include "execution/error.hpp"

namespace stowage::execution {

void throw_no_form(std::string_view what, Dtype dtype) {
  throw Error(Exit::runtime, fmt::format("there is no form for {} of {}", what, name(dtype)));
}

}  // namespace stowage::execution
