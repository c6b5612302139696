#pragma once

#include "kernels/norm/group_shares.hpp"
#include "kernels/operator.hpp"

namespace stowage::kernels {

/// The gated norm of a Mamba-2 mixer (arXiv 2405.21060; RMSNormGated with norm_before_gate false):
///
///   v = y * silu(z),  out = v * rstd * w,  rstd = 1 / sqrt(mean(v^2) + eps)
///
/// with one mean for each of the `groups` equal parts of a row (n, d_inner). z are columns of a
/// wider tensor. If ranks share a group, d_inner is this rank's part of it, groups is 1, and
/// squares (parts, n) are gated_squares of each part. Where it is `measured`, amax (1) is the
/// largest magnitude of out.
struct GatedRmsnormForward {
  static constexpr std::string_view kName = "gated_rmsnorm_forward";
  std::int64_t rows, width, groups;
  execution::Dtype storage;
  double eps;
  GroupShares shares = {};
  bool measured = false;

  template <class T>
  struct Operands {
    In<T> y;
    InColumns<T> z;
    In<T> w;
    SumsIn<T> squares;
    Out<T> out;
    SumsOut<T> amax;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("y", storage, {rows, width}), o.y...);
    f(in("z", storage, {rows, width}), o.z...);
    f(in("w", storage, {width}), o.w...);
    f(in("squares", sums, {shares.parts, rows}).when(shares.shared()), o.squares...);
    f(out("out", storage, {rows, width}), o.out...);
    f(out("amax", sums, {1}).when(measured), o.amax...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// Gradient of the above; rstd is computed again from y and z, or from squares. `accumulate` adds
/// to dw. If ranks share a group, projections (parts, n) are gated_projections of each part. Where
/// it is `measured`, amax (1) is the largest magnitude of dz.
struct GatedRmsnormBackward {
  static constexpr std::string_view kName = "gated_rmsnorm_backward";
  std::int64_t rows, width, groups;
  execution::Dtype storage;
  double eps;
  bool accumulate;
  GroupShares shares = {};
  bool measured = false;

  template <class T>
  struct Operands {
    In<T> dout, y;
    InColumns<T> z;
    In<T> w;
    Out<T> dy;
    OutColumns<T> dz;
    SumsOut<T> dw, workspace;
    SumsIn<T> squares, projections;
    SumsOut<T> amax;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("dout", storage, {rows, width}), o.dout...);
    f(in("y", storage, {rows, width}), o.y...);
    f(in("z", storage, {rows, width}), o.z...);
    f(in("w", storage, {width}), o.w...);
    f(out("dy", storage, {rows, width}), o.dy...);
    f(out("dz", storage, {rows, width}), o.dz...);
    f(sum("dw", accumulate, sums, {width}), o.dw...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(in("squares", sums, {shares.parts, rows}).when(shares.shared()), o.squares...);
    f(in("projections", sums, {shares.parts, rows}).when(shares.shared()), o.projections...);
    f(out("amax", sums, {1}).when(measured), o.amax...);
  }
  /// For one partial dw of each block of rows.
  std::size_t workspace_bytes() const;
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
