#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "execution/program.hpp"

namespace stowage::offload {

/// Factors on the time of ops that run beside copies in one direction: of those that device memory
/// does not bind, and of those that it does.
struct Slowdown {
  double arithmetic = 1;
  double memory = 1;
};

/// Communication within a group of ranks: a message takes latency_s + bytes / bytes_per_s.
struct Link {
  double latency_s = 1e-5;
  double bytes_per_s = 3.4e11;

  double time_s(double bytes) const { return latency_s + bytes / bytes_per_s; }
};

/// How fast a machine is, as far as a plan depends on it. The defaults are one H200's, measured.
struct Rates {
  double flops_per_s = 7.05e14;              ///< large matrix products
  double device_bytes_per_s = 4.24e12;       ///< device memory, read plus written
  double d2h_bytes_per_s = 5.55e10;          ///< device to pinned host memory
  double h2d_bytes_per_s = 5.54e10;          ///< and back
  double duplex_bytes_per_s = 1.01e11;       ///< sum of both directions at once
  double copy_latency_s = 2.5e-6;            ///< of a copy over the link, beside its bytes
  Slowdown d2h_slowdown = {1.0034, 1.0105};  ///< beside copies to the host
  Slowdown h2d_slowdown = {1.0058, 1.0248};  ///< and back
  /// Factor on the time of ops beside copies that count rows, whose blocks occupy SMs; measured
  /// with 128 blocks a copy, where fewer are used now.
  double counted_slowdown = 1.5;
  double op_s = 2e-6;  ///< to start a kernel and to end it
  /// What memory-bound ops reach of a copy's rate; products reach flops_per_s itself.
  double memory_efficiency = 0.87;
  /// What ops of a kind (execution::op_kind) reach of roofline_s, where it is not all of it; also
  /// of kinds that go on with _ and are not listed: "attn/core" of "attn/core_early".
  std::map<std::string, double, std::less<>> efficiency;
  /// Factor on the estimated times of ops, to fit a measured step.
  double scale = 1;
  Link link;  ///< of groups that are not listed
  /// By the group's name and, where a kind of collective has a link of its own, both: "data",
  /// "data all_reduce"; "any all_reduce" is of groups that are not listed.
  using Links = std::map<std::string, Link>;
  Links links;
  /// The same while something computes beside, where that takes longer.
  Links links_with_compute;
  /// Measured time of each op of a program, by index; 0, or none: estimated from its cost.
  std::vector<double> measured_s;

  /// Time of compute that arithmetic or device memory binds, whichever takes longer, with what
  /// comes apart from both.
  double roofline_s(const execution::Cost& cost) const;
  /// Time of one op of a program, alone on the machine.
  double time_s(const execution::Program& program, int op) const;
  /// The link that a kind of collective ("all_reduce") takes within a group.
  const Link& link_of(const std::string& group, const std::string& kind) const;
  /// Time of so many bytes of a kind of collective while something computes beside: never less
  /// than while nothing does.
  double with_compute_s(const std::string& group, const std::string& kind, double bytes) const;
  /// The same of a communication op.
  double with_compute_s(const execution::Program& program, int op) const;
  /// Factor on an op's time beside copies: between the two of `slowdown`, by the part of its time
  /// that its bytes take.
  double with_copies(const execution::Program& program, int op, const Slowdown& slowdown) const;
  /// Time of a copy between device and host while the other direction is idle.
  double d2h_s(std::size_t bytes) const {
    return copy_latency_s + static_cast<double>(bytes) / d2h_bytes_per_s;
  }
  double h2d_s(std::size_t bytes) const {
    return copy_latency_s + static_cast<double>(bytes) / h2d_bytes_per_s;
  }
  /// Factor on the time of a copy while the other direction is busy.
  double duplex_slowdown() const;

 private:
  bool is_measured(int op) const;
  /// Of the bytes of compute, and of all of an op, before `scale`.
  double memory_s(const execution::Cost& cost) const;
  double efficiency_of(std::string_view kind) const;
  double estimated_s(const execution::Op& op) const;
};

}  // namespace stowage::offload
