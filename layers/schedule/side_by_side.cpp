#include "layers/schedule/side_by_side.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace stowage::layers {
namespace {

using execution::Access;
using execution::Op;
using execution::Program;
using execution::Use;

/// The two passes while they are put together.
class SideBySide {
 public:
  SideBySide(const Program& program, int begin, int middle)
      : program_(program),
        passes_{Pass{begin, middle, {}}, Pass{middle, static_cast<int>(program.ops().size()), {}}},
        needed_(needed_of_first(begin, middle)) {}

  std::vector<int> order() {
    std::vector<int> order;
    bool second = false;
    while (!passes_[0].done() || !passes_[1].done()) {
      if (!may_go_on(second)) {
        passes_[second ? 1 : 0].exchanged.clear();  // the other's ops lie beside it
        second = !second;
      }
      Pass& pass = passes_[second ? 1 : 0];
      pass.issue(program_);
      order.push_back(pass.next++);
    }
    return order;
  }

 private:
  struct Pass {
    int next, end;
    std::vector<int> exchanged;  ///< tensors that came since the other pass was at work, by root

    bool done() const { return next == end; }
    void issue(const Program& program) {
      const Op& op = program.ops()[next];
      if (op.lane != execution::Lane::comm) return;
      for (const Use& use : op.uses)
        if (use.access != Access::read) exchanged.push_back(root(program, use));
    }
    bool waits(const Program& program) const {
      const Op& op = program.ops()[next];
      return op.lane == execution::Lane::compute &&
             std::ranges::any_of(op.uses, [&](const Use& use) {
               return std::ranges::find(exchanged, root(program, use)) != exchanged.end();
             });
    }
  };

  static int root(const Program& program, const Use& use) {
    const execution::Tensor whole = program.info(use.tensor).whole;
    return whole ? whole.id : use.tensor.id;
  }

  /// By op of the second pass: how far the first has to be, because of what both use.
  std::vector<int> needed_of_first(int begin, int middle) const {
    struct Last {
      int read = -1, written = -1;
    };
    std::map<int, Last> last;  // by root
    for (int i = begin; i < middle; ++i)
      for (const Use& use : program_.ops()[i].uses) {
        Last& at = last[root(program_, use)];
        (use.access == Access::read ? at.read : at.written) = i;
      }
    std::vector<int> needed;
    for (int i = middle; i < static_cast<int>(program_.ops().size()); ++i) {
      int most = -1;
      for (const Use& use : program_.ops()[i].uses)
        if (const auto found = last.find(root(program_, use)); found != last.end())
          most = std::max(
              {most, found->second.written, use.access == Access::read ? -1 : found->second.read});
      needed.push_back(most);
    }
    return needed;
  }

  bool held_by_first(int op) const {
    return needed_[static_cast<std::size_t>(op - passes_[0].end)] >= passes_[0].next;
  }

  /// The pass at work goes on until it waits, if the other can then.
  bool may_go_on(bool second) const {
    const Pass& mine = passes_[second ? 1 : 0];
    const Pass& other = passes_[second ? 0 : 1];
    if (mine.done()) return false;
    if (second && held_by_first(mine.next)) return false;
    if (other.done() || (!second && held_by_first(other.next))) return true;
    return !mine.waits(program_);
  }

  const Program& program_;
  Pass passes_[2];
  std::vector<int> needed_;
};

}  // namespace

void put_side_by_side(Program& program, int begin, int middle) {
  program.reorder(begin, SideBySide(program, begin, middle).order());
}

}  // namespace stowage::layers
