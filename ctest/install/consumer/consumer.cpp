// A program of somebody else, built against an installed Stowage.
#include <cstdio>

#include "execution/dtype.hpp"
#include "version/version.hpp"

int main() {
  const auto& info = stowage::version::build_info();
  std::printf("Stowage %s\n", info.release.data());
  return stowage::execution::size_bytes(stowage::execution::Dtype::bf16) == 2 ? 0 : 1;
}
