#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "execution/dtype.hpp"
#include "execution/op.hpp"
#include "kernels/matrix.hpp"
#include "kernels/operands.hpp"

/// An operator says once which operands it has. Recording, checks, benchmarks and tests follow:
///
///   struct Scale {
///     static constexpr std::string_view kName = "scale";
///     std::int64_t rows, width;
///     execution::Dtype storage;
///
///     template <class T>
///     struct Operands {
///       In<T> x;
///       Out<T> y;
///     };
///     void each(auto&& f, auto&... o) const {
///       f(in("x", storage, {rows, width}), o.x...);
///       f(out("y", storage, {rows, width}), o.y...);
///     }
///     execution::Cost cost() const;
///     void run(execution::Queue& queue, const Operands<execution::View>& views) const;
///   };
///
/// `Operands<T>` is the same list for every T: Tensor in a program, View on a queue, Pointers<S> in
/// a reference and a launch, Array in a test. `each` visits the operands of any number of such
/// lists side by side, in the order of the op's uses. Callers name every operand, `{}` is one that
/// is absent; a compiler warns of one that is left out.
namespace stowage::kernels {

/// Elements of an operand in its declaration: of the storage type, of its accumulation type, of the
/// one that a field of the operator names (in Pointers without a type).
struct Storage;
struct Sums;
struct Either;

/// As the T of Operands<T>: the addresses of operands of storage type S, null if absent.
template <class S>
struct Pointers;

/// As the T of Operands<T>: how often `each` visits an operand. One byte, whatever its kind.
struct Visits {
  unsigned char count = 0;
};

/// Columns [first, first + count) of an operand that is a matrix, used in place.
template <class T>
struct ColumnsOf {
  T whole = {};
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool beside = false;  ///< written beside columns that an earlier op wrote: the tensor is updated
};

/// Rows of an operand, used in place; the range that means all: all of them.
template <class T>
struct RowsOf {
  RowsOf() = default;
  RowsOf(T of, execution::Range some = {})  // NOLINT(google-explicit-constructor): all rows
      : whole(of), rows(some) {}

  T whole = {};
  execution::Range rows = {};
};
/// As a kernel sees them: of some rows the elements.
template <>
struct RowsOf<execution::View> {
  RowsOf() = default;
  RowsOf(const execution::View& of, bool not_all = false)  // NOLINT(google-explicit-constructor)
      : view(of), some(not_all) {}

  execution::View view = {};
  bool some = false;
};

/// As the T of Operands<T>: which use of an op an operand is.
using execution::UseIndex;

/// As many groups of operands as an operator says, such as the states of each parameter. Grows
/// where it is written; `each` visits the operands of one group after the other.
template <class T, template <class> class Group>
class ListOf {
 public:
  Group<T>& operator[](std::size_t i) {
    if (i >= groups_.size()) groups_.resize(i + 1);
    return groups_[i];
  }
  const Group<T>& operator[](std::size_t i) const { return groups_.at(i); }
  void push_back(Group<T> group) { groups_.push_back(std::move(group)); }

 private:
  std::vector<Group<T>> groups_;
};
template <template <class> class Group>
struct ListOf<Visits, Group> {
  Group<Visits>& operator[](std::size_t) {
    static Group<Visits> any;
    return any;
  }
  Visits visits = {1};
};

namespace detail {

template <class S, class Element>
struct ElementOf {
  using Type = Element;
};
template <class S>
struct ElementOf<S, Storage> {
  using Type = S;
};
template <class S>
struct ElementOf<S, Sums> {
  using Type = execution::Accumulation<S>;
};
template <class S>
struct ElementOf<S, Either> {
  using Type = void;
};
template <class S, class Element>
struct ElementOf<S, const Element> {
  using Type = const typename ElementOf<S, Element>::Type;
};

template <class T, class Element>
struct Operand {
  using Whole = T;
  using Columns = ColumnsOf<T>;
  using Rows = T;  ///< some rows of another tensor: in a program alone
};
template <class Element>
struct Operand<execution::Tensor, Element> {
  using Whole = execution::Tensor;
  using Columns = ColumnsOf<execution::Tensor>;
  using Rows = RowsOf<execution::Tensor>;
};
template <class Element>
struct Operand<UseIndex, Element> {
  using Whole = UseIndex;
  using Columns = ColumnsOf<UseIndex>;
  using Rows = RowsOf<UseIndex>;
};
template <class Element>
struct Operand<execution::View, Element> {
  using Whole = execution::View;
  using Columns = kernels::Columns;
  using Rows = RowsOf<execution::View>;
};
template <class Element>
struct Operand<Visits, Element> {
  using Whole = Visits;
  using Columns = Visits;
  using Rows = Visits;
};
template <class S, class Element>
struct Operand<Pointers<S>, Element> {
  using Whole = typename ElementOf<S, Element>::Type*;
  using Columns = Matrix<typename ElementOf<S, Element>::Type>;
  using Rows = Whole;
};

}  // namespace detail

/// The members of Operands<T>: an operand of any elements, or columns or rows of one.
template <class T, class Element>
using Of = typename detail::Operand<T, Element>::Whole;
template <class T, class Element>
using ColumnsOfType = typename detail::Operand<T, Element>::Columns;
template <class T, class Element>
using RowsOfType = typename detail::Operand<T, Element>::Rows;

/// The usual ones: read or written, in the storage type or in that of sums.
template <class T>
using In = Of<T, const Storage>;
template <class T>
using Out = Of<T, Storage>;
template <class T>
using InColumns = ColumnsOfType<T, const Storage>;
template <class T>
using OutColumns = ColumnsOfType<T, Storage>;
template <class T>
using InRows = RowsOfType<T, const Storage>;
template <class T>
using OutRows = RowsOfType<T, Storage>;
template <class T>
using SumsIn = Of<T, const Sums>;
template <class T>
using SumsOut = Of<T, Sums>;

/// How an operator touches an operand, and what must be bound to it.
struct Spec {
  const char* name;
  execution::Access access;
  execution::Dtype dtype;
  std::vector<std::int64_t> shape;  ///< of columns or rows: that of these
  bool present = true;              ///< must it be there, or must it be absent
  bool workspace = false;           ///< any dtype and shape of at least so many bytes
  bool any_shape = false;           ///< of so many elements
  bool own_use = false;             ///< a use of its own, also of an earlier operand's tensor

  /// There if `condition` holds, absent otherwise.
  Spec when(bool condition) && {
    present = condition;
    return static_cast<Spec&&>(*this);
  }
  Spec in_any_shape() && {
    any_shape = true;
    return static_cast<Spec&&>(*this);
  }
  Spec as_own_use() && {
    own_use = true;
    return static_cast<Spec&&>(*this);
  }
};

/// Specs of what is read, stored, stored or added to, and of scratch bytes, which are absent where
/// none are needed.
Spec in(const char* name, execution::Dtype dtype, std::vector<std::int64_t> shape);
Spec out(const char* name, execution::Dtype dtype, std::vector<std::int64_t> shape);
Spec sum(const char* name, bool accumulate, execution::Dtype dtype,
         std::vector<std::int64_t> shape);
Spec workspace(std::size_t bytes);

template <class Op, class T>
using OperandsOf = typename Op::template Operands<T>;

/// A type that declares an operator: `each`, with operands of any kind, and the members below.
template <class Op>
concept Operator = requires(const Op& op, execution::Queue& queue,
                            const OperandsOf<Op, execution::View>& views) {
  std::string_view(Op::kName);
  op.each([](const Spec&, const auto&) {}, views);
  execution::Cost(op.cost());
  op.run(queue, views);
};

/// One operand is what its spec says. @throws Error that names the operator and the operand
void check(const Operands& operands, const Spec& spec, const execution::View& view);
void check(const Operands& operands, const Spec& spec, const Columns& columns);
void check(const Operands& operands, const Spec& spec, const RowsOf<execution::View>& rows);
void require_none(const Operands& operands, const std::string& fault);
/// Ends a run of an operator whose Operands<T> and `each` say different things of an operand.
[[noreturn]] void throw_other_type(std::string_view op, const Spec& spec);

/// All of them are, and `fault()` of an operator that has it finds none among its sizes.
template <Operator Op>
void check(const Op& op, const OperandsOf<Op, execution::View>& views) {
  const Operands operands(Op::kName);
  if constexpr (requires { op.fault(); }) require_none(operands, op.fault());
  op.each([&](const Spec& spec, const auto& view) { check(operands, spec, view); }, views);
}

[[noreturn]] void throw_other_operands(std::string_view op);

/// @throws Error unless `each` visits every member of Operands<T> once
template <Operator Op>
void require_each_once(const Op& op) {
  OperandsOf<Op, Visits> visits;
  op.each([](const Spec&, Visits& operand) { ++operand.count; }, visits);
  const auto counts = std::bit_cast<std::array<unsigned char, sizeof visits>>(visits);
  if (std::ranges::count(counts, 1) != std::ssize(counts)) throw_other_operands(Op::kName);
}

/// Adds the use of an operand. One that is bound to what an earlier operand is bound to is the same
/// use: read and written, it is updated.
UseIndex add_use(std::vector<execution::Use>& uses, const Spec& spec, execution::Tensor tensor,
                 execution::Range elements = {});
ColumnsOf<UseIndex> add_use(std::vector<execution::Use>& uses, const Spec& spec,
                            const ColumnsOf<execution::Tensor>& columns);
RowsOf<UseIndex> add_use(std::vector<execution::Use>& uses, const Spec& spec,
                         const RowsOf<execution::Tensor>& rows);
/// Its view among those of the op's uses.
inline execution::View view_of(UseIndex use, execution::Views views) { return use.in(views); }
Columns view_of(const ColumnsOf<UseIndex>& columns, execution::Views views);
RowsOf<execution::View> view_of(const RowsOf<UseIndex>& rows, execution::Views views);

/// The op of a program, without its name: uses, cost and launch.
template <Operator Op>
execution::Op recorded(const Op& op, const OperandsOf<Op, execution::Tensor>& tensors) {
  require_each_once(op);
  execution::Op made;
  OperandsOf<Op, UseIndex> indices;
  op.each([&](const Spec& spec, const auto& tensor,
              auto& index) { index = add_use(made.uses, spec, tensor); },
          tensors, indices);
  made.cost = op.cost();
  made.launch = [op, indices](execution::Queue& queue, execution::Views all) {
    OperandsOf<Op, execution::View> views;
    op.each([&](const Spec&, const auto& index, auto& view) { view = view_of(index, all); },
            indices, views);
    op.run(queue, views);
  };
  return made;
}

}  // namespace stowage::kernels

/// What every operator with a reference and device code has, behind its declaration.
#define STOWAGE_OPERATOR_MEMBERS                                                   \
  execution::Cost cost() const;                                                    \
  void run(execution::Queue& queue, const Operands<execution::View>& views) const; \
  template <class S>                                                               \
  void reference(const Operands<Pointers<S>>& o) const;                            \
  template <class S>                                                               \
  int launch(const Operands<Pointers<S>>& o, void* stream) const

/// The host references of an operator, behind their definition.
#define STOWAGE_REFERENCES(Op)                                            \
  template void Op::reference(const Operands<Pointers<double>>& o) const; \
  template void Op::reference(const Operands<Pointers<float>>& o) const;  \
  template void Op::reference(const Operands<Pointers<execution::Bf16>>& o) const;
