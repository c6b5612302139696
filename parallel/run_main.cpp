#include "parallel/run_main.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "parallel/job/agreement.hpp"
#include "parallel/job/signals.hpp"
#include "parallel/job/standard_streams.hpp"
#include "parallel/watch/job_watch.hpp"
#include "parallel/watch/watchdog.hpp"
#include "version/version.hpp"

namespace stowage::parallel {
namespace {

using execution::Exit;
using std::chrono::milliseconds;

/// How long a failing rank waits for the others to fail as well, before it ends them.
constexpr milliseconds kAgreementTime{1000};

struct Failure {
  Exit exit = Exit::runtime;
  std::string message;
};

/// True if every rank calls this within kAgreementTime.
bool all_failed(const Communicator& ranks) {
  int mine = 1, all = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_MIN, ranks.handle(), &request) != MPI_SUCCESS)
    return false;
  const auto deadline = std::chrono::steady_clock::now() + kAgreementTime;
  int done = 0;
  while (std::chrono::steady_clock::now() < deadline) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

/// Ends the process without a word of the libraries in it.
[[noreturn]] void leave(int code) {
  std::fflush(stdout);
  std::_Exit(code);
}

/// Ends this rank after a failure: returns if all ranks failed alike before they began, else ends
/// all ranks. `ranks` is used for nothing else.
int end(const Failure& failure, const Communicator& ranks) {
  const bool before_work = failure.exit == Exit::usage || failure.exit == Exit::environment;
  const bool together = all_failed(ranks);
  if (together && before_work) {
    if (ranks.rank() == 0) print_error({}, failure.message);
    return static_cast<int>(failure.exit);
  }
  end_all_ranks(failure.message, failure.exit);
}

/// Runs `f` and returns its failure, or nothing.
template <class F>
std::optional<Failure> failure_of(F&& f) {
  try {
    f();
    return {};
  } catch (const execution::Error& error) {
    return Failure{error.exit(), error.what()};
  } catch (const std::bad_alloc&) {
    return Failure{Exit::environment, "this host has too little memory for what was asked"};
  } catch (const std::system_error& error) {
    const bool lacks = error.code() == std::errc::resource_unavailable_try_again ||
                       error.code() == std::errc::not_enough_memory;
    if (!lacks) return Failure{Exit::runtime, error.what()};
    return Failure{Exit::environment,
                   fmt::format("this host has too little memory or too few threads for what was "
                               "asked ({}): see ulimit -u and ulimit -v",
                               error.what())};
  } catch (const std::length_error& error) {  // of a container: more than any host has
    return Failure{Exit::environment,
                   fmt::format("no host has memory for what was asked ({})", error.what())};
  } catch (const std::exception& error) {
    return Failure{Exit::runtime, error.what()};
  }
}

/// "stowage_train 0.2 (v0.2-3-gabcdef, gcc 12)": what must be one on all ranks.
std::string program_of(const char* path) {
  const version::BuildInfo& build = version::build_info();
  return fmt::format("{} {} ({}, {})", std::filesystem::path(path).filename().string(),
                     build.release, build.git_describe, build.compiler);
}

/// Names of files are relative to it.
void require_working_directory() {
  std::error_code error;
  static_cast<void>(std::filesystem::current_path(error));
  if (error) execution::throw_usage("the working directory is not there: {}", error.message());
}

/// A full disk under standard output is told here, since writes before only fill a buffer.
void require_printed() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw execution::Error(Exit::runtime,
                         fmt::format("standard output is not complete: {}", std::strerror(errno)));
}

/// run_main() without its last word: all that is of MPI has ended.
int run(int argc, char** argv, const MainProgram& program, Stops stops) {
  occupy_closed_streams();
  std::optional<StopSignals> signals;
  if (stops == Stops::between_steps) {
    signals.emplace();
    std::signal(SIGPIPE, SIG_IGN);  // who reads the output may go: the run goes on, and tells
  }
  std::signal(SIGXFSZ, SIG_IGN);  // beyond `ulimit -f` a write fails as on a full disk, and is told
  std::optional<Environment> environment;
  std::optional<Communicator> world, failing;
  std::optional<JobWatch> watch;
  if (const auto failure = failure_of([&] {
        environment.emplace(argc, argv);
        world = Communicator::world();
        failing = world->duplicate();
        watch.emplace(*world);
        if (signals) signals->renew();
      })) {
    print_error(execution::error_prefix(), failure->message);
    return static_cast<int>(failure->exit);
  }
  Exit exit = Exit::valid;
  if (const auto failure = failure_of([&] {
        require_equal(*world, "programs", program_of(argv[0]));
        require_working_directory();
        exit = program(*world);
        require_printed();
      }))
    return end(*failure, *failing);
  return static_cast<int>(exit);
}

}  // namespace

int run_main(int argc, char** argv, const MainProgram& program, Stops stops) {
  const int code = run(argc, argv, program, stops);
  if (code != static_cast<int>(Exit::environment)) return code;
  // Where memory is short, threads of libraries may wait for it for ever (OpenBLAS's do), and the
  // libraries for their threads as the process ends.
  leave(code);
}

}  // namespace stowage::parallel
