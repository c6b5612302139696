// Every dense product of the standard decks, one by one: what the table of algorithms is made from.

#include <algorithm>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/product_case.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::dense_shape;
using kernels::ProductShape;
using kernels::Transpose;

Shape shape_of(const ProductShape& product) {
  return Shape{{"m", product.m},
               {"n", product.n},
               {"k", product.k},
               {"ta", product.transpose_a == Transpose::yes},
               {"tb", product.transpose_b == Transpose::yes},
               {"stride", product.a_stride},
               {"fp32", product.c == Dtype::fp32},
               {"accumulate", product.accumulate}};
}

ProductShape product_of(const Shape& shape) {
  const auto transpose = [&](const char* name) {
    return shape[name] != 0 ? Transpose::yes : Transpose::no;
  };
  ProductShape product =
      dense_shape(shape["m"], shape["n"], shape["k"], transpose("ta"), transpose("tb"), Dtype::bf16,
                  shape["fp32"] != 0 ? Dtype::fp32 : Dtype::bf16, shape["accumulate"] != 0);
  product.a_stride = shape["stride"];
  return product;
}

/// Adds what is not there yet.
class List {
 public:
  /// A linear layer: forward, and both gradients, stored and added to.
  void layer(std::int64_t tokens, std::int64_t outputs, std::int64_t inputs) {
    add(dense_shape(tokens, outputs, inputs, Transpose::no, Transpose::yes, Dtype::bf16,
                    Dtype::bf16, false));
    for (const bool accumulate : {false, true}) {
      add(dense_shape(tokens, inputs, outputs, Transpose::no, Transpose::no, Dtype::bf16,
                      Dtype::bf16, accumulate));
      add(dense_shape(outputs, inputs, tokens, Transpose::yes, Transpose::no, Dtype::bf16,
                      Dtype::fp32, accumulate));
    }
  }
  /// The head's chunks of rows: logits in fp32, whose gradient lies in their place in bf16.
  void head(std::int64_t tokens, std::int64_t vocabulary, std::int64_t width) {
    const std::int64_t chunk = kernels::cross_entropy_device_chunk(tokens, vocabulary);
    for (const std::int64_t rows : {chunk, tokens % chunk}) {
      if (rows == 0) continue;
      add(dense_shape(rows, vocabulary, width, Transpose::no, Transpose::yes, Dtype::bf16,
                      Dtype::fp32, false));
      ProductShape dh = dense_shape(rows, width, vocabulary, Transpose::no, Transpose::no,
                                    Dtype::bf16, Dtype::bf16, false);
      dh.a_stride = 2 * vocabulary;
      add(dh);
      for (const bool accumulate : {false, true}) {
        ProductShape dw = dense_shape(vocabulary, width, rows, Transpose::yes, Transpose::no,
                                      Dtype::bf16, Dtype::fp32, accumulate);
        dw.a_stride = 2 * vocabulary;
        add(dw);
      }
    }
  }
  /// A router's logits, in fp32; their gradients have a kernel of their own on Hopper
  /// (mixed_backward.hpp), and are left to the heuristics elsewhere.
  void router(std::int64_t tokens, std::int64_t experts, std::int64_t width) {
    add(dense_shape(tokens, experts, width, Transpose::no, Transpose::yes, Dtype::bf16, Dtype::fp32,
                    false));
  }

  std::vector<Shape> shapes() const {
    std::vector<Shape> made;
    for (const ProductShape& product : products_) made.push_back(shape_of(product));
    return made;
  }

 private:
  void add(const ProductShape& product) {
    if (std::find(products_.begin(), products_.end(), product) == products_.end())
      products_.push_back(product);
  }

  std::vector<ProductShape> products_;
};

/// hybrid-moe-2b and hybrid-dense-1b, then dense-124m, as inputs/ has them.
std::vector<Shape> deck_products() {
  List list;
  constexpr std::int64_t kTokens = 2 * 8192, kWidth = 2048, kVocabulary = 65536;
  for (const auto& [outputs, inputs] : {std::pair<std::int64_t, std::int64_t>{10304, kWidth},
                                        {kWidth, 4096},    // Mamba-2: in_proj, out_proj
                                        {3072, kWidth},    // attention: qkv
                                        {kWidth, kWidth},  // its output; a shared expert
                                        {8192, kWidth},    // MLP
                                        {kWidth, 8192}})
    list.layer(kTokens, outputs, inputs);
  list.router(kTokens, 32, kWidth);
  list.head(kTokens, kVocabulary, kWidth);
  constexpr std::int64_t kSmallTokens = 64 * 1024, kSmallWidth = 768;
  for (const auto& [outputs, inputs] : {std::pair<std::int64_t, std::int64_t>{2304, kSmallWidth},
                                        {kSmallWidth, kSmallWidth},
                                        {3072, kSmallWidth},
                                        {kSmallWidth, 3072}})
    list.layer(kSmallTokens, outputs, inputs);
  list.head(kSmallTokens, 50304, kSmallWidth);
  return list.shapes();
}

}  // namespace

Entry product_entry() {
  return {
      .name = "product",
      .help = "c (m, n) = op(a) op(b), bf16 with fp32 sums, every shape of the standard decks",
      .shapes = deck_products(),
      .implementations = product_implementations(),
      .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        const ProductShape product = product_of(shape);
        return std::make_unique<ProductCase>(gpu, product, seed, ProductCase::Ours());
      }};
}

}  // namespace stowage::drivers::bench
