#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/linear/dense_product.hpp"

namespace stowage::kernels {

/// An algorithm as cuBLASLt stores it: its parameters in the library's own encoding, which may be
/// kept and used again with the same version of the library.
using ProductAlgorithm = std::array<std::uint64_t, 8>;

/// What operands are aligned to, in bytes, as far as algorithms care; those of the table need it.
inline constexpr std::uint32_t kProductAlignment = 256;

/// One product prepared for launch: the library's descriptors and a list of algorithms.
class ProductPlan {
 public:
  /// Asks the heuristics for algorithms that sum in fp32: the first is their best by estimate. With
  /// more than one candidate, further ones that they name for neighbouring shapes, up to
  /// `candidates` in all.
  /// @param alignment of all operands, in bytes: a power of two, 256 at most
  /// @throws Error if there is none
  ProductPlan(const ProductShape& shape, int candidates,
              std::uint32_t alignment = kProductAlignment);
  /// One given algorithm, such as a row of the table. Of a batch that the library does not accept
  /// it for, it has no candidate.
  /// @throws Error if this library does not accept it for one product
  ProductPlan(const ProductShape& shape, const ProductAlgorithm& algorithm);
  ~ProductPlan();

  int candidates() const;
  ProductAlgorithm algorithm(int candidate) const;
  /// "algo 66, tile 393, stages 36, split 1, reduction 0, swizzle 0, custom 5, inner 0, cluster 2"
  std::string algorithm_text(int candidate) const;

  /// @param workspace of kProductWorkspaceBytes  @param scales of 8-bit factors
  void run(int candidate, const void* a, const void* b, void* c, void* workspace,
           cudaStream_t stream, const ProductScales& scales = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stowage::kernels
