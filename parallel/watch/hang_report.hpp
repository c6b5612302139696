#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/job/mpi.hpp"

namespace stowage::parallel {

/// Where a rank is in the collectives of one group.
struct Presence {
  std::uint64_t begun = 0;  ///< collectives begun so far
  std::uint64_t ended = 0;  ///< collectives ended so far
  std::string name;         ///< of the one begun last

  bool waits() const { return begun != ended; }
};

/// Asks the ranks of a group who has come to a collective, when one of them has waited too long.
///
/// A rank that hangs in its own work still answers, as its watchdog does that; one that is dead or
/// stopped does not. Messages go over MPI beside the collectives, whatever moves those. Of an
/// exchange that is not of all ranks, those that have no part in it are named too.
class HangReport {
 public:
  using Seconds = std::chrono::duration<double>;

  /// Collective over `ranks`, of which a message space of its own is made.
  explicit HangReport(const Communicator& ranks);

  /// Answers what others have asked meanwhile. Does not block.
  void answer(const Presence& mine);
  /// Asks the others, answering them meanwhile, until all have answered or `patience` is over.
  /// @return those that have not, "rank 2 (host n017), rank 3 (host n018)"
  std::string ask(const Presence& mine, Seconds patience);
  /// The same with what they said.
  /// @return "has not come: rank 1 (host n017), which has ended reduce/a, number 1; does not
  /// answer: rank 2 (host n017)"
  std::string call(const Presence& mine, Seconds patience = Seconds(2));
  /// After one of these: waits while a lower rank that waits for the same collective may speak for
  /// all, and answers it. Whoever speaks ends the job, so this returns only if nobody did.
  void let_lower_speak(const Presence& mine, Seconds patience = Seconds(3));

 private:
  /// A presence as it travels; a longer name is cut.
  struct Message {
    std::uint64_t begun, ended;
    std::array<char, 240> name;
  };
  struct Peer {
    std::string place;  ///< "rank 1 (host n017)", of the job
    bool answers = false;
    Presence presence;
    Message reply{};  ///< under way to it
  };
  static Message pack(const Presence& presence);
  /// @param message stays as it is until the end
  bool send(int peer, int tag, const Message& message);
  bool receive(int tag, int& peer, Presence& presence);

  Communicator ranks_;
  std::vector<Peer> peers_;  ///< by rank of the group
  Message question_{};
};

}  // namespace stowage::parallel
