#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drivers/bench_kernels/agreement.hpp"
#include "drivers/bench_kernels/operand.hpp"
#include "execution/op.hpp"
#include "run/measure/gpu.hpp"

namespace stowage::drivers::bench {

/// Sizes of a case by name, in the order of the operator's own list.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::pair<std::string, std::int64_t>> sizes) : sizes_(sizes) {}

  /// @throws Error (exit 2) for a size that the shape does not have
  std::int64_t operator[](const std::string& name) const;
  void set(const std::string& name, std::int64_t value);

  /// "B=2,T=8192": as --shape takes it.
  std::string text() const;
  /// "B2_T8192": as part of a metric's tag.
  std::string tag() const;

  /// This shape with the sizes of `text` ("T=4096,H=16") in place of its own.
  /// @throws Error (exit 2) that names the sizes there are
  Shape with(const std::string& text) const;

 private:
  std::vector<std::pair<std::string, std::int64_t>> sizes_;
};

/// One operator at one shape, with its operands in device memory.
class Case {
 public:
  virtual ~Case() = default;

  virtual execution::Cost cost() const = 0;
  /// Of an implementation that does only a part of the operator.
  virtual execution::Cost cost_of(const std::string&) const { return cost(); }
  /// Enqueues one launch of an implementation; allocates nothing.
  virtual void enqueue(const std::string& implementation, execution::Queue& queue) = 0;
  /// Compares what the latest launch of an implementation left in the outputs with the reference;
  /// nothing for one that is checked nowhere, whose row then says so.
  virtual std::vector<Agreement> check(const std::string& implementation) = 0;

  /// The fastest algorithm that was found for a library's product, as a row of
  /// kernels/linear/product_table.inc; empty if the case makes no search.
  virtual std::string product_row() const { return {}; }

  /// All operands; outputs are poisoned before a launch is checked.
  std::vector<Operand*> operands;
};

/// One way to compute an operator.
struct Implementation {
  std::string name;     ///< "ours", "cublas", "cudnn"
  std::string version;  ///< of the library behind it: "cuBLASLt 13.1.0"; empty: kernels of ours
  std::string missing;  ///< why this build cannot run it; empty: it can
  std::string algorithm = {};  ///< which of the library's ways it takes

  /// "cuBLASLt 13.1.0, the first algorithm of its heuristics", for the reader of a row.
  std::string library() const { return algorithm.empty() ? version : version + ", " + algorithm; }
};

/// An operator that can be benchmarked.
struct Entry {
  std::string name;  ///< "attention_forward"
  std::string help;
  std::vector<Shape> shapes;  ///< what runs without --shape; the first gives the default sizes
  std::vector<Implementation> implementations;
  std::function<std::unique_ptr<Case>(run::Gpu& gpu, const Shape& shape, std::int64_t seed)> make;
  bool wgmma = false;  ///< ours are kernels for compute capability 9.0: skipped on other GPUs
};

/// Every operator of this build.
std::vector<Entry> registry();

/// Runs a host reference on all cores: as an operation of a host backend.
void on_host(const std::function<void()>& reference);

}  // namespace stowage::drivers::bench
