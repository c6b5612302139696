#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "inputs/deck/deck.hpp"
#include "offload/rates.hpp"
#include "parallel/groups/grid.hpp"

namespace stowage::forecast {

/// The link between the ranks of groups: a line of machine.links, "data 1.2e-5 3.4e11" or, of
/// groups of four and a kind of collective, "any:4 all_reduce 6e-5 1.7e11".
struct GroupLink {
  std::string group;  ///< its name, or any: all that have no line of their own
  int ranks = 0;      ///< 0: groups of any size
  std::string kind;   ///< of collectives; empty: all that have no line of their own
  offload::Link link;
};

/// What is known of a machine, as far as times depend on it: the section [machine] of a deck, or
/// what result sets measured. A number that is 0 and a list that is empty are not known.
struct MachineFacts {
  std::string name;
  double matmul_flops_per_s = 0;
  double device_copy_bytes_per_s = 0;
  double d2h_bytes_per_s = 0;
  double h2d_bytes_per_s = 0;
  double duplex_bytes_per_s = 0;
  double copy_latency_s = 0;
  offload::Slowdown d2h_slowdown{0, 0};
  offload::Slowdown h2d_slowdown{0, 0};
  double allreduce_bytes_per_s = 0;
  std::vector<GroupLink> links;
  std::vector<GroupLink> links_with_compute;  ///< while something computes
  std::int64_t ranks_per_node = 0;
  std::string ranks_per_node_cited;  ///< key, value and place, for a message; empty without a deck
  double network_latency_s = 0;
  double network_bytes_per_s = 0;
  std::int64_t ranks_per_switch = 0;
  double spine_bytes_per_s = 0;
  /// By kind of op (offload::Rates::efficiency).
  std::map<std::string, double, std::less<>> op_efficiency;
};

/// The section [machine] of a deck.
/// @throws Error (exit 2) for a line that is no link or no efficiency, or a kind of op given twice
MachineFacts machine_facts(const inputs::Deck& deck);

/// Significant decimal digits of measured facts: more than repeat from one measurement to the next.
constexpr int kRateDigits = 5;        ///< rates, slowdowns and machine.links
constexpr int kFitDigits = 4;         ///< links that fit timed ops: machine.links_beside
constexpr int kEfficiencyDigits = 3;  ///< machine.op_efficiency

/// The double nearest to a value of so many significant decimal digits. By decimal conversion, both
/// ways exact to the last bit: a scaled std::round is not.
double round_digits(double value, int digits);

/// The keys of [machine] that hold measured facts, for a deck; those not known are left out.
/// @param facts rounded to the digits above: a line of a link has no more
inputs::Deck::Settings machine_settings(const MachineFacts& facts);

/// The rates of a machine for ranks of a grid; those of one H200 where nothing is known.
/// @throws Error (exit 2) if groups span hosts and nothing is known of the network
offload::Rates machine_rates(const MachineFacts& facts, const parallel::GridShape& shape);

}  // namespace stowage::forecast
