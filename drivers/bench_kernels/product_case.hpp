#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/case.hpp"
#include "kernels/linear/product_plan.hpp"

namespace stowage::drivers::bench {

/// One dense product: as an operator runs it ("ours", by the table of algorithms), by the first
/// algorithm of cuBLASLt's heuristics ("cublas"), and by the fastest that a search finds
/// ("cublas_search", product_search.hpp).
class ProductCase final : public Case {
 public:
  /// Enqueues c = a b, or c +=; empty: dense_product().
  using Ours =
      std::function<void(execution::Queue&, const Bound& a, const Bound& b, const Bound& c)>;

  ProductCase(run::Gpu& gpu, const kernels::ProductShape& product, std::int64_t seed, Ours ours);

  execution::Cost cost() const override;
  void enqueue(const std::string& implementation, execution::Queue& queue) override;
  std::string product_row() const override { return row_; }
  /// Blocks at the edges and in the middle of c, in fp64.
  std::vector<Agreement> check(const std::string&) override;

 private:
  void search(run::Gpu& gpu);
  void prepare_reference();
  /// The compared blocks of c, one after another.
  std::vector<double> compared() const;
  double tolerance() const;

  kernels::ProductShape product_;
  Ours ours_;
  Operand a_, b_, c_;
  std::array<Bound, 3> bound_;
  std::optional<Operand> one_;  ///< the scale of 8-bit factors
  kernels::ProductScales scales_;
  std::unique_ptr<execution::Arena> workspace_;
  kernels::ProductPlan plan_;
  int fastest_ = 0;
  std::string row_;
  std::vector<double> reference_;
};

/// What every entry of products can run.
std::vector<Implementation> product_implementations();

}  // namespace stowage::drivers::bench
