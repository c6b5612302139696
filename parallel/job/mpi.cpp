#include "parallel/job/mpi.hpp"

#include <unistd.h>
#include <algorithm>

#include <array>
#include <chrono>
#include <numeric>
#include <thread>

#include "parallel/job/launcher.hpp"
#include "parallel/job/waits.hpp"

namespace stowage::parallel {
namespace {

constexpr std::chrono::microseconds kPollTime{100};  ///< longer than a short message takes
constexpr std::chrono::microseconds kNapTime{20};

}  // namespace

void throw_mpi_failed(std::string_view call, int code, std::source_location at) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  execution::throw_call_failed("MPI", call, code, {text.data(), static_cast<std::size_t>(length)},
                               at);
}

void wait(MPI_Request& request) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int done = 0;;) {
    STOWAGE_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done != 0) return;
    if (Clock::now() - start < kPollTime)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kNapTime);
  }
}

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  STOWAGE_MPI(MPI_Get_library_version(text, &length));
  return std::string(text, static_cast<std::size_t>(length));
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

int cores_of_rank(const Communicator& world) {
  const auto cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const auto bound = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(bound, cores / world.split_by_host().size()));
}

Environment::Environment(int& argc, char**& argv) {
  int initialized = 0;
  STOWAGE_MPI(MPI_Initialized(&initialized));
  int provided = MPI_THREAD_SINGLE;
  if (initialized != 0) {
    STOWAGE_MPI(MPI_Query_thread(&provided));
  } else {
    start_alone();
    STOWAGE_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    owned_ = true;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // duplicates inherit it
  int rank = 0;
  STOWAGE_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  execution::set_error_rank(rank, host_name());
  if (provided < MPI_THREAD_MULTIPLE)
    execution::throw_environment("MPI gives thread level {}, MPI_THREAD_MULTIPLE ({}) is needed",
                                 provided, static_cast<int>(MPI_THREAD_MULTIPLE));
}

Environment::~Environment() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (owned_ && finalized == 0) MPI_Finalize();
}

Communicator::Communicator(MPI_Comm owned) : handle_(owned) {
  STOWAGE_MPI(MPI_Comm_rank(handle_, &rank_));
  STOWAGE_MPI(MPI_Comm_size(handle_, &size_));
}

Communicator::Communicator(Communicator&& other) noexcept
    : handle_(std::exchange(other.handle_, MPI_COMM_NULL)),
      rank_(other.rank_),
      size_(other.size_) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
  return *this;
}

Communicator::~Communicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (handle_ != MPI_COMM_NULL && finalized == 0) MPI_Comm_free(&handle_);
}

namespace {

/// Starts a call by `start(request)` and waits for it as wait() does.
template <class Start>
void finish(Start&& start) {
  MPI_Request request = MPI_REQUEST_NULL;
  start(&request);
  wait(request);
}

/// Returns when all ranks are here: a blocking call behind it, which would poll, does not wait.
void meet(MPI_Comm ranks) {
  finish([&](MPI_Request* request) { STOWAGE_MPI(MPI_Ibarrier(ranks, request)); });
}

}  // namespace

Communicator Communicator::world() {
  const Wait noted("MPI_Comm_dup");
  MPI_Comm copy = MPI_COMM_NULL;
  meet(MPI_COMM_WORLD);
  STOWAGE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
  return Communicator(copy);
}

Communicator Communicator::duplicate() const {
  const Wait noted("MPI_Comm_dup");
  MPI_Comm copy = MPI_COMM_NULL;
  meet(handle_);
  STOWAGE_MPI(MPI_Comm_dup(handle_, &copy));
  return Communicator(copy);
}

Communicator Communicator::split(int color, int key) const {
  const Wait noted("MPI_Comm_split");
  MPI_Comm part = MPI_COMM_NULL;
  meet(handle_);
  STOWAGE_MPI(MPI_Comm_split(handle_, color, key, &part));
  return Communicator(part);
}

Communicator Communicator::split_by_host() const {
  const Wait noted("MPI_Comm_split_type");
  MPI_Comm part = MPI_COMM_NULL;
  meet(handle_);
  STOWAGE_MPI(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part));
  return Communicator(part);
}

void Communicator::barrier() const {
  const Wait noted("MPI_Barrier");
  meet(handle_);
}

std::int64_t Communicator::max(std::int64_t value) const {
  const Wait noted("MPI_Allreduce");
  std::int64_t result = value;
  finish([&](MPI_Request* request) {
    STOWAGE_MPI(MPI_Iallreduce(&value, &result, 1, MPI_INT64_T, MPI_MAX, handle_, request));
  });
  return result;
}

double Communicator::sum(double value) const {
  const Wait noted("MPI_Allreduce");
  double total = 0;
  finish([&](MPI_Request* request) {
    STOWAGE_MPI(MPI_Iallreduce(&value, &total, 1, MPI_DOUBLE, MPI_SUM, handle_, request));
  });
  return total;
}

std::string Communicator::broadcast(const std::string& text) const {
  const Wait noted("MPI_Bcast");
  auto length = static_cast<std::int64_t>(text.size());
  finish([&](MPI_Request* request) {
    STOWAGE_MPI(MPI_Ibcast(&length, 1, MPI_INT64_T, 0, handle_, request));
  });
  std::string result = rank_ == 0 ? text : std::string(static_cast<std::size_t>(length), '\0');
  finish([&](MPI_Request* request) {
    STOWAGE_MPI(MPI_Ibcast(result.data(), narrow<int>(length), MPI_CHAR, 0, handle_, request));
  });
  return result;
}

namespace {

/// Calls `move(bytes, count)` for pieces whose lengths fit MPI's int.
template <class Byte, class Move>
void in_pieces(std::span<Byte> bytes, Move&& move) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kMost, bytes.size())))
    move(bytes.data(), narrow<int>(std::min(kMost, bytes.size())));
}

constexpr int kBytesTag = 1;

}  // namespace

void Communicator::send(std::span<const std::byte> bytes, int to) const {
  const Wait noted("MPI_Send");
  in_pieces(bytes, [&](const std::byte* data, int count) {
    finish([&](MPI_Request* request) {
      STOWAGE_MPI(MPI_Isend(data, count, MPI_BYTE, to, kBytesTag, handle_, request));
    });
  });
}

void Communicator::receive(std::span<std::byte> bytes, int from) const {
  const Wait noted("MPI_Recv");
  in_pieces(bytes, [&](std::byte* data, int count) {
    finish([&](MPI_Request* request) {
      STOWAGE_MPI(MPI_Irecv(data, count, MPI_BYTE, from, kBytesTag, handle_, request));
    });
  });
}

std::vector<std::string> Communicator::gather(const std::string& text) const {
  const Wait noted("MPI_Gather");
  const int length = narrow<int>(text.size());
  std::vector<int> lengths(rank_ == 0 ? static_cast<std::size_t>(size_) : 0);
  finish([&](MPI_Request* request) {
    STOWAGE_MPI(MPI_Igather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, handle_, request));
  });
  std::vector<int> offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string all(rank_ == 0 ? static_cast<std::size_t>(offsets.back() + lengths.back()) : 0, '\0');
  finish([&](MPI_Request* request) {
    STOWAGE_MPI(MPI_Igatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(),
                             offsets.data(), MPI_CHAR, 0, handle_, request));
  });
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.push_back(
        all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
  return texts;
}

}  // namespace stowage::parallel
