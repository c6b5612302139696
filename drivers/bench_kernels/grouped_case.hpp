#pragma once

#include <array>
#include <map>
#include <span>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/case.hpp"
#include "kernels/linear/product_plan.hpp"

/// What the operators of grouped_linear.cpp and grouped_mlp.cpp share.
namespace stowage::drivers::bench {

/// Rows of each expert: load 0, all alike; 1, as 1 / (e + 1) (Zipf, s = 1), in a mixed order; 2,
/// all for one expert.
std::vector<std::int32_t> expert_offsets(std::int64_t experts, std::int64_t rows,
                                         std::int64_t load);

/// Sizes of the layers that are measured: E, rows, D, F.
std::vector<std::array<std::int64_t, 4>> grouped_sizes();

/// A loop over the experts with cuBLASLt, one plan for each number of rows, captured in a graph.
class ExpertLoop {
 public:
  struct Product {
    kernels::ProductShape shape;
    const void* a;
    const void* b;
    void* c;
  };

  /// @param cleared bytes that the loop sets to 0 first: results of experts without rows
  ExpertLoop(run::Gpu& gpu, const std::vector<Product>& products,
             const std::vector<std::span<std::byte>>& cleared = {});
  void enqueue(execution::Queue& queue) { graph_->launch(queue); }

 private:
  std::map<kernels::ProductShape, kernels::ProductPlan> plans_;
  std::unique_ptr<execution::Arena> workspace_;
  std::unique_ptr<execution::Graph> graph_;
};

/// x (rows, K), w or dw (E, M, K), y or dy (rows, M), and the rows of each expert.
class GroupedCase : public Case {
 protected:
  GroupedCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed, Role x, Role w, Role y);

  /// Rows [first, first + rows) of an expert that has some, and its place in each matrix.
  struct Expert {
    std::int64_t index, first, rows;
  };
  std::vector<Expert> busy() const;
  /// How many these are: the others' weights take no part, and no cost counts them.
  std::int64_t busy_count() const { return static_cast<std::int64_t>(busy().size()); }
  void* at(const Operand& operand, std::int64_t element) const;
  /// The product of x, w and y, or one of its gradients.
  template <class Op>
  Op product() const {
    Op op{};
    op.rows = op.routed = rows_;
    op.experts = experts_;
    op.outputs = m_;
    op.inputs = k_;
    op.storage = execution::Dtype::bf16;
    return op;
  }
  /// Of an operator, without the weights of experts that have no rows.
  template <class Op>
  execution::Cost busy_cost(Op op) const {
    op.experts = busy_count();
    return op.cost();
  }

  /// The loops of cuBLASLt: y = x w[e]^T, dx = dy w[e].
  std::unique_ptr<ExpertLoop> forward_loop(run::Gpu& gpu) const;
  std::unique_ptr<ExpertLoop> backward_input_loop(run::Gpu& gpu) const;

  /// The errors of ours, and how they compare with the peer's once both are known.
  std::vector<Agreement> agree(const std::string& implementation, const std::string& what,
                               double error, double tolerance, const std::string& over);

  /// Rows spread over all experts, from `from` (rows, depth) and the experts' weights, in fp64;
  /// made once.
  struct Sampled {
    std::vector<std::int64_t> rows;
    std::vector<std::vector<double>> values;
  };
  const Sampled& sample_products(const Operand& from, std::int64_t columns, bool transposed);
  /// y or dx against these.
  std::vector<Agreement> check_rows(const std::string& implementation, const Operand& from,
                                    const Operand& to, bool transposed);

  static constexpr std::int64_t kSampledRows = 16;

  std::int64_t experts_, rows_, m_, k_;
  std::vector<std::int32_t> places_;
  Operand x_, w_, y_, offsets_;
  std::array<Bound, 4> bound_;  ///< of these four

 private:
  std::map<std::string, double> ours_error_;
  Sampled sampled_;
};

}  // namespace stowage::drivers::bench
