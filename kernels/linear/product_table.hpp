#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/linear/product_plan.hpp"

namespace stowage::kernels {

/// The algorithm that an offline search found fastest for a product on one GPU type with one
/// version of the library: a row of product_table.inc.
struct ProductChoice {
  std::string_view device;  ///< as the CUDA runtime names it
  std::size_t library;      ///< cublasLtGetVersion(), as 130002
  ProductShape shape;
  ProductAlgorithm algorithm;
};

/// All rows.
std::span<const ProductChoice> product_table();

/// The table's algorithm for exactly this device, library version and shape, or none.
std::optional<ProductAlgorithm> tabled_algorithm(std::string_view device, std::size_t library,
                                                 const ProductShape& shape);

/// A row of the table as C++, for product_table.inc: how `stowage_bench_kernels --product-table`
/// writes what its search found.
std::string table_row(const ProductChoice& choice);

}  // namespace stowage::kernels
