#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "execution/op.hpp"
#include "execution/tensor.hpp"

namespace stowage::execution {

/// A node of the scope tree: step > microbatch > layer > attn | mamba | mlp | moe > moe_router.
struct Scope {
  int parent = -1;
  std::string kind;
  int layer = -1;
  int microbatch = -1;
  bool backward = false;
};

/// A run of consecutive ops that is executed `repeat` times in a step: prologue, first microbatch,
/// body, last microbatch, epilogue. A section that repeats is planned once, with the same addresses
/// in every period.
struct Section {
  std::string name;
  int repeat = 1;
  int begin = 0;  ///< ops [begin, end)
  int end = 0;
};

class PersistentLayout;
class Program;

/// Leaves its scope when it goes out of scope.
class ScopeGuard {
 public:
  ScopeGuard(Program& program, int parent) : program_(&program), parent_(parent) {}
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  ~ScopeGuard();

 private:
  Program* program_;
  int parent_;
};

/// One kind of step (train, evaluate) as a list of ops on tensors. Knows nothing of memory limits,
/// offload or graphs.
class Program {
 public:
  /// @param layout if given, persistent tensors are parts of their buckets, which are tensors too;
  /// outlives this
  explicit Program(std::string name, const PersistentLayout* layout = nullptr);

  const std::string& name() const { return name_; }

  /// Adds a tensor. A persistent one that exists by this name is returned again.
  /// @throws Error if the name is taken by another tensor or by other facts.
  Tensor add(TensorInfo info);
  Tensor saved(std::string name, Dtype dtype, std::vector<std::int64_t> shape, std::string module,
               LeadingRows rows = {});
  Tensor scratch(std::string name, Dtype dtype, std::vector<std::int64_t> shape);
  /// A tensor that the host stages before each step; its h2d copy is the next op.
  Tensor input(std::string name, Dtype dtype, std::vector<std::int64_t> shape);
  /// A tensor that the host reads after each step; finish() appends its d2h copy.
  Tensor output(std::string name, Dtype dtype, std::vector<std::int64_t> shape);

  /// Ops appended from here on belong to a new section that runs `repeat` times.
  void begin_section(std::string name, int repeat = 1);
  /// Opens a scope inside the current one.
  [[nodiscard]] ScopeGuard enter(std::string_view kind, int layer = -1, int microbatch = -1,
                                 bool backward = false);
  /// Appends an op to the current section, in the innermost open scope.
  void append(Op op);
  /// Puts the ops from `begin` on, which are of the current section, into another order.
  /// @param order their present indices
  void reorder(int begin, const std::vector<int>& order);
  /// Appends the copies of the outputs. No op may follow.
  void finish();

  const TensorInfo& info(Tensor tensor) const;
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Section>& sections() const { return sections_; }
  const std::vector<Scope>& scopes() const { return scopes_; }
  /// The tensor of this name, or no tensor.
  Tensor find(std::string_view name) const;
  /// What the use of a range of a tensor is. Of a bucket, part by part in the order of addresses:
  /// the access itself to what its tensors hold; the padding between them holds nothing, so what
  /// would update it writes it, and what would read it leaves it out.
  std::vector<Use> uses(Tensor whole, Range range, Access access) const;
  /// The elements of the payload that a use names, with the end resolved.
  Range resolve(const Use& use) const;
  /// Sum over the ops of one step, repeats included, reruns left out.
  Cost cost() const;

 private:
  friend class ScopeGuard;

  std::string name_;
  const PersistentLayout* layout_;
  std::vector<TensorInfo> tensors_;
  std::vector<Op> ops_;
  std::vector<Section> sections_;
  std::vector<Scope> scopes_;
  std::unordered_map<std::string, int> by_name_;
  std::unordered_map<int, std::vector<int>> parts_;  ///< of a bucket: its tensors in use
  int scope_ = -1;
  bool finished_ = false;
};

}  // namespace stowage::execution
