#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/dispatch.hpp"
#include "kernels/operands.hpp"
#include "kernels/ssd/ssd.hpp"

/// What the queue forms of the scan and of its segments share: checks, and addresses of operands.
namespace stowage::kernels::detail {

/// A state at an end of the sequence, where it is asked for.
inline void check_state(const Operands& operands, const SsdShape& shape, execution::Dtype storage,
                        const execution::View& state, std::string_view operand) {
  operands.check_optional(state, operand, execution::accumulation(storage),
                          {shape.heads, shape.head_dim, shape.state});
}

/// The addresses of a scan's inputs.
class SsdInputAddresses {
 public:
  /// Checks them too; n tokens.
  SsdInputAddresses(const Operands& operands, execution::Dtype storage, std::int64_t n,
                    const SsdShape& shape, const SsdInputOperands& v,
                    const execution::View& initial_state)
      : x_(check(operands, v.x, "x", storage, n, shape.heads * shape.head_dim)),
        dt_(check(operands, v.dt, "dt", storage, n, shape.heads)),
        b_(check(operands, v.b, "b", storage, n, shape.groups * shape.state)),
        c_(check(operands, v.c, "c", storage, n, shape.groups * shape.state)),
        a_log_(v.a_log),
        d_(v.d),
        dt_bias_(v.dt_bias),
        seq_idx_(v.seq_idx),
        initial_state_(initial_state) {
    check_state(operands, shape, storage, initial_state, "initial_state");
    operands.check(v.a_log, "a_log", storage, {shape.heads});
    operands.check(v.d, "d", storage, {shape.heads});
    operands.check(v.dt_bias, "dt_bias", storage, {shape.heads});
    operands.check(v.seq_idx, "seq_idx", execution::Dtype::int32, {n});
  }

  template <class S>
  SsdInputs<S> as() const {
    return {x_.as<const S>(),
            dt_.as<const S>(),
            b_.as<const S>(),
            c_.as<const S>(),
            a_log_.as<const S>(),
            d_.as<const S>(),
            dt_bias_.as<const S>(),
            seq_idx_.as<const std::int32_t>(),
            initial_state_.as<const execution::Accumulation<S>>()};
  }

  static ColumnsAddress check(const Operands& operands, const Columns& columns,
                              std::string_view operand, execution::Dtype storage, std::int64_t rows,
                              std::int64_t count) {
    operands.check(columns, operand, storage, rows, count);
    return ColumnsAddress(columns);
  }

 private:
  ColumnsAddress x_, dt_, b_, c_;
  Address a_log_, d_, dt_bias_, seq_idx_, initial_state_;
};

/// The number of tokens, from y or dy (n, H*P).
inline std::int64_t check_ssd_shape(const Operands& operands, const SsdShape& shape,
                                    const execution::View& y, std::string_view operand) {
  operands.require(shape.groups > 0 && shape.heads % shape.groups == 0,
                   "heads is not a multiple of groups");
  operands.require(shape.chunk > 0, "chunk is not positive");
  operands.require(shape.dt_min <= shape.dt_max, "dt_min is above dt_max");
  operands.rank(y, operand, 2);
  operands.check(y, operand, y.dtype(), {y.extent(0), shape.heads * shape.head_dim});
  return y.extent(0);
}

}  // namespace stowage::kernels::detail
