// A driver that fails in the way its argument names; run_main_test starts it.
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "execution/backend.hpp"
#include "parallel/groups/collectives.hpp"
#include "parallel/job/agreement.hpp"
#include "parallel/job/waits.hpp"
#include "parallel/run_main.hpp"
#include "parallel/transport/host_transport.hpp"

namespace {

using namespace stowage;
using execution::Exit;

/// One rank fails in its comm queue, as the others wait for it in theirs.
void fail_in_queue(const parallel::Communicator& world) {
  const auto backend = execution::make_host_backend();
  const auto comm = backend->make_queue(execution::Lane::comm, "comm");
  const parallel::Collectives collectives(parallel::make_host_transport(world, "world"));
  if (world.rank() == 1) comm->enqueue([] { throw execution::Error(Exit::runtime, "op failed"); });
  float value = 1, room[16];
  collectives.all_reduce(*comm, 0, &value, 1, execution::Dtype::fp32, parallel::Reduction::sum,
                         execution::Dtype::fp32, room);
  comm->synchronize();
}

/// One rank does not come to the second of two collectives: it hangs, or is gone.
void miss_a_collective(const parallel::Communicator& world, bool dies) {
  const auto backend = execution::make_host_backend();
  const auto comm = backend->make_queue(execution::Lane::comm, "comm");
  const parallel::Collectives collectives(parallel::host_transports(1.0)(world, "data"));
  const int first = collectives.transport().announce("reduce/first");
  const int second = collectives.transport().announce("reduce/second");
  float value = 1, room[16];
  const auto reduce = [&](int index) {
    collectives.all_reduce(*comm, index, &value, 1, execution::Dtype::fp32,
                           parallel::Reduction::sum, execution::Dtype::fp32, room);
    comm->synchronize();
  };
  reduce(first);
  if (world.rank() == 1 && dies) std::raise(SIGKILL);
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::minutes(10));
  reduce(second);
}

/// One rank does not come to a call in which the others wait: it is stopped, or busy for long.
void miss_a_call(const parallel::Communicator& world, bool stops) {
  parallel::set_wait_patience(std::chrono::seconds(1));
  if (world.rank() != 1) return;
  if (stops) std::raise(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(6));
}

Exit fail(const parallel::Communicator& world, const std::string& how) {
  const bool second = world.rank() == 1;
  if (how == "usage") execution::throw_usage("deck key model.heads is 7");
  if (how == "usage_on_one" && second) execution::throw_usage("file data.bin is not there");
  if (how == "environment") execution::throw_environment("no GPU was found");
  if (how == "runtime") throw execution::Error(Exit::runtime, "all lost");
  if (how == "foreign" && second) throw std::out_of_range("index 12");
  if (how == "queue") fail_in_queue(world);
  if (how == "hang") miss_a_collective(world, false);
  if (how == "killed") miss_a_collective(world, true);
  if (how == "stops_before_work") miss_a_call(world, true);
  if (how == "busy_before_work") miss_a_call(world, false);
  if (how == "mpi" && second) {
    int value = 0;
    STOWAGE_MPI(MPI_Send(&value, 1, MPI_INT, 99, 0, world.handle()));
  }
  if (how == "memory") (void)std::vector<char>(std::size_t{1} << 60);
  if (how == "more_than_any") (void)std::vector<char>(~std::size_t{0});
  if (how == "decks") parallel::require_equal(world, "decks", second ? "b.toml" : "a.toml");
  if (how == "stopped") return Exit::stopped;
  if (how == "invalid") return Exit::invalid;
  world.barrier();
  return Exit::valid;
}

}  // namespace

/// An MPI that gives fewer threads than it was asked for, if the program is to have one.
extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int code = PMPI_Init_thread(argc, argv, required, provided);
  if (*argc > 1 && std::string((*argv)[1]) == "few_threads") *provided = MPI_THREAD_SERIALIZED;
  return code;
}

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  return stowage::parallel::run_main(argc, argv,
                                     [&how](const auto& world) { return fail(world, how); });
}
