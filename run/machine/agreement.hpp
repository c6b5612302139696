#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/job/mpi.hpp"

/// What the ranks of a benchmark must know of each other so that all of them do the same. Each
/// call is collective over `world`.
namespace stowage::run {

/// The objection of the lowest rank that has one, on every rank; empty: none has.
std::string first_objection(const parallel::Communicator& world, const std::string& objection);

/// Rank 0's numbers, on every rank.
std::vector<double> of_rank_0(const parallel::Communicator& world, std::span<const double> values);

/// The numbers of all ranks, equally many on each: (numbers, ranks) on rank 0, empty elsewhere.
std::vector<double> by_rank(const parallel::Communicator& world, std::span<const double> values);

/// The largest of each row of (rows, ranks).
std::vector<double> largest_of_ranks(std::span<const double> values, std::size_t ranks);

}  // namespace stowage::run
