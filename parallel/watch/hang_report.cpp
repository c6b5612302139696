#include "parallel/watch/hang_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>
#include <thread>

namespace stowage::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kQuestion = 1, kAnswer = 2;
constexpr std::chrono::milliseconds kNap{2};

/// True if a rank is in the collective that another one waits for, or beyond it.
bool has_come(const Presence& other, const Presence& mine) {
  return other.begun > mine.begun || (other.waits() && other.name == mine.name);
}

std::string where(const Presence& presence) {
  if (presence.begun == 0) return "has begun none";
  return fmt::format("{} {}, number {}", presence.waits() ? "waits in" : "has ended", presence.name,
                     presence.begun);
}

}  // namespace

HangReport::Message HangReport::pack(const Presence& presence) {
  Message message{presence.begun, presence.ended, {}};
  presence.name.copy(message.name.data(), message.name.size() - 1);
  return message;
}

HangReport::HangReport(const Communicator& ranks) : ranks_(ranks.duplicate()) {
  int job_rank = 0;
  STOWAGE_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &job_rank));
  std::string all;
  for (const std::string& place :
       ranks_.gather(fmt::format("rank {} (host {})", job_rank, host_name())))
    all += place + '\n';
  std::istringstream lines(ranks_.broadcast(all));
  for (std::string place; std::getline(lines, place);)
    peers_.push_back({std::move(place), {}, {}, {}});
}

// Codes of MPI are looked at, not thrown: a peer that is gone is one that does not answer.

bool HangReport::send(int peer, int tag, const Message& message) {
  MPI_Request request = MPI_REQUEST_NULL;
  return MPI_Isend(&message, sizeof message, MPI_BYTE, peer, tag, ranks_.handle(), &request) ==
             MPI_SUCCESS &&
         MPI_Request_free(&request) == MPI_SUCCESS;
}

bool HangReport::receive(int tag, int& peer, Presence& presence) {
  int there = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, tag, ranks_.handle(), &there, &status) != MPI_SUCCESS ||
      there == 0)
    return false;
  peer = status.MPI_SOURCE;
  Message message{};
  if (MPI_Recv(&message, sizeof message, MPI_BYTE, peer, tag, ranks_.handle(), MPI_STATUS_IGNORE) !=
      MPI_SUCCESS)
    return false;
  presence = {message.begun, message.ended, message.name.data()};
  return true;
}

void HangReport::answer(const Presence& mine) {
  int peer = 0;
  Presence theirs;
  while (receive(kQuestion, peer, theirs)) {
    Message& reply = peers_[peer].reply;
    reply = pack(mine);
    (void)send(peer, kAnswer, reply);
  }
}

std::string HangReport::ask(const Presence& mine, Seconds patience) {
  const auto deadline = Clock::now() + patience;
  question_ = pack(mine);
  for (int r = 0; r < ranks_.size(); ++r) {
    Peer& peer = peers_[r];
    peer.answers = r == ranks_.rank();
    if (!peer.answers) (void)send(r, kQuestion, question_);
  }
  const auto all_answer = [&] { return std::ranges::all_of(peers_, &Peer::answers); };
  while (!all_answer() && Clock::now() < deadline) {
    answer(mine);
    int peer = 0;
    Presence theirs;
    while (receive(kAnswer, peer, theirs)) {
      Peer& who = peers_[peer];
      who.answers = true;
      who.presence = std::move(theirs);
    }
    std::this_thread::sleep_for(kNap);
  }
  std::string silent;
  for (const Peer& peer : peers_)
    if (!peer.answers) silent += fmt::format("{}{}", silent.empty() ? "" : ", ", peer.place);
  return silent;
}

std::string HangReport::call(const Presence& mine, Seconds patience) {
  const std::string silent = ask(mine, patience);
  std::string absent;
  for (int r = 0; r < ranks_.size(); ++r) {
    const Peer& peer = peers_[r];
    if (r != ranks_.rank() && peer.answers && !has_come(peer.presence, mine))
      absent += fmt::format("{}{}, which {}", absent.empty() ? "" : "; ", peer.place,
                            where(peer.presence));
  }
  if (absent.empty() && silent.empty()) return "all ranks have come";
  return fmt::format("{}{}{}{}{}", absent.empty() ? "" : "has not come: ", absent,
                     absent.empty() || silent.empty() ? "" : "; ",
                     silent.empty() ? "" : "does not answer: ", silent);
}

void HangReport::let_lower_speak(const Presence& mine, Seconds patience) {
  const auto deadline = Clock::now() + patience;
  const auto lower_waits = [&] {
    return std::any_of(peers_.begin(), peers_.begin() + ranks_.rank(), [&](const Peer& peer) {
      return peer.answers && peer.presence.waits() && peer.presence.name == mine.name;
    });
  };
  if (!lower_waits()) return;
  while (Clock::now() < deadline) {
    answer(mine);
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace stowage::parallel
