#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "execution/error.hpp"

/// Calls MPI and throws an Error with MPI's text, the call and the place if it fails. The rank is
/// added where the error is printed.
#define STOWAGE_MPI(call)                                                                  \
  do {                                                                                     \
    if (const int stowage_mpi_code = (call); stowage_mpi_code != MPI_SUCCESS) [[unlikely]] \
      ::stowage::parallel::throw_mpi_failed(#call, stowage_mpi_code,                       \
                                            std::source_location::current());              \
  } while (false)

namespace stowage::parallel {

[[noreturn]] void throw_mpi_failed(std::string_view call, int code, std::source_location at);

/// Converts an integer where the value must fit: MPI 3 counts are int.
/// @throws Error if it does not
template <class To, class From>
To narrow(From value) {
  STOWAGE_ASSERT(std::in_range<To>(value), "{} does not fit in {} bytes", value, sizeof(To));
  return static_cast<To>(value);
}

/// MPI's lifetime. Errors of MPI calls are returned, not fatal, so that they reach STOWAGE_MPI.
class Environment {
 public:
  /// Initialises MPI for calls from any thread, and tells execution::Error the rank and host. Does
  /// not own MPI if it is initialised already.
  /// @throws Error (exit 3) if the library does not support threads
  Environment(int& argc, char**& argv);
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  /// Finalizes MPI if owned.
  ~Environment();

 private:
  bool owned_ = false;
};

/// A group of ranks with an order and a message space of its own. Collective calls are made by all
/// of them, in one order.
class Communicator {
 public:
  /// A duplicate of all ranks of the job.
  static Communicator world();

  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator();

  /// Collective. Same ranks, messages apart: one for each thread that communicates.
  Communicator duplicate() const;
  /// Collective. Ranks of equal colour, ordered by key.
  Communicator split(int color, int key) const;
  /// Collective. The ranks that share a host's memory.
  Communicator split_by_host() const;

  MPI_Comm handle() const { return handle_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  void barrier() const;
  /// The largest value of all ranks.
  std::int64_t max(std::int64_t value) const;
  /// The sum of all ranks' values, on every rank.
  double sum(double value) const;
  /// Rank 0's text, on every rank.
  std::string broadcast(const std::string& text) const;
  /// Blocking messages between two ranks, of any size.
  void send(std::span<const std::byte> bytes, int to) const;
  void receive(std::span<std::byte> bytes, int from) const;
  /// The texts of all ranks in rank order, on rank 0; empty elsewhere.
  std::vector<std::string> gather(const std::string& text) const;

 private:
  explicit Communicator(MPI_Comm owned);

  MPI_Comm handle_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

/// Waits for a request without holding a core for long: MPI's own waits poll at full speed, and on
/// the host backend the cores are those that compute.
void wait(MPI_Request& request);

/// Collective. The cores that this rank may take: those that it is bound to, or its share of the
/// host's, whichever are fewer; at least one.
int cores_of_rank(const Communicator& world);

/// This machine's name.
std::string host_name();
/// "Open MPI v4.1.4, package: …": what the library says of itself.
std::string mpi_library();

}  // namespace stowage::parallel
