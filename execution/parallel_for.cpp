#include "execution/parallel_for.hpp"

#include "execution/error.hpp"

namespace stowage::execution::detail {

void throw_launch_failed(int code) {
  throw_call_failed("CUDA", "launch of a parallel_for", code, {}, std::source_location::current());
}

}  // namespace stowage::execution::detail
