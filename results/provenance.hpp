#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "results/value.hpp"

/// Where a result comes from: the run, the software, the machine of each rank, the environment.
namespace stowage::results {

/// One rank's part of the machine. The driver fills the GPU's fields; all else is found here.
struct RankInfo {
  std::int64_t rank = 0;
  std::string host;
  std::string cpu_model;
  std::string topology;    ///< hwloc's synthetic form: "Package:1 L3Cache:1 Core:2 PU:1"
  std::string cpuset;      ///< logical CPUs that the rank may use: "0-15"
  std::string numa_nodes;  ///< the NUMA nodes of these CPUs: "0"
  std::int64_t cpus = 0;
  std::int64_t threads = 0;       ///< compute threads that the rank runs
  std::int64_t memory_bytes = 0;  ///< of the host
  std::string kernel;             ///< "Linux 6.1.0"
  std::string gpu_name;           ///< empty: no GPU used
  std::string gpu_uuid;
  std::string gpu_pci;
  std::string gpu_driver;
  std::string gpu_mode;  ///< ECC and MIG: "ecc on, mig off"
  std::int64_t gpu_memory_bytes = 0;
  double gpu_clock_hz = 0;  ///< highest graphics clock allowed
  double gpu_power_limit_w = 0;
  std::string gpu_numa_node;        ///< of its PCI slot; empty: the host does not say
  double gpu_default_limit_w = 0;   ///< the board's power limit as it is sold; 0: not known
  double gpu_clock_limit_hz = 0;    ///< what settings hold its clock to; 0: none, or not known
  std::string gpu_clock_events;     ///< what held its clock down at the start: "power brake"
  std::int64_t gpu_ecc_errors = 0;  ///< uncorrected ones since its driver was loaded
  std::int64_t gpu_nvlinks = 0;     ///< NVLinks that are up
  std::int64_t gpu_nvlinks_down = 0;
  double gpu_nvlink_bytes_per_s = 0;  ///< of all that are up, each way; 0: not known
  std::string gpu_links;              ///< paths to the GPUs of its host's other ranks (`links.hpp`)
  std::string gpu_unreached;  ///< ranks of its host whose GPUs' memory its own cannot reach: "2-3"
  std::string gpu_hidden;     ///< ranks of its host whose GPUs this process is not shown
  std::string nics;           ///< network cards, with paths from its GPU (`links.hpp`)
};

/// Calls `f(name, member pointer, must_agree)` for every field of RankInfo, in the file's order.
/// The table in the file, the text between ranks and the comparison of ranks all come from here.
template <class F>
void for_each_rank_field(F&& f) {
  f("rank", &RankInfo::rank, false);
  f("host", &RankInfo::host, false);
  f("cpu_model", &RankInfo::cpu_model, true);
  f("topology", &RankInfo::topology, true);
  f("cpuset", &RankInfo::cpuset, false);
  f("numa_nodes", &RankInfo::numa_nodes, false);
  f("cpus", &RankInfo::cpus, true);
  f("threads", &RankInfo::threads, true);
  f("memory_bytes", &RankInfo::memory_bytes, false);
  f("kernel", &RankInfo::kernel, true);
  f("gpu_name", &RankInfo::gpu_name, true);
  f("gpu_uuid", &RankInfo::gpu_uuid, false);
  f("gpu_pci", &RankInfo::gpu_pci, false);
  f("gpu_driver", &RankInfo::gpu_driver, true);
  f("gpu_mode", &RankInfo::gpu_mode, true);
  f("gpu_memory_bytes", &RankInfo::gpu_memory_bytes, true);
  f("gpu_clock_hz", &RankInfo::gpu_clock_hz, true);
  f("gpu_power_limit_w", &RankInfo::gpu_power_limit_w, true);
  f("gpu_numa_node", &RankInfo::gpu_numa_node, false);
  f("gpu_default_limit_w", &RankInfo::gpu_default_limit_w, false);
  f("gpu_clock_limit_hz", &RankInfo::gpu_clock_limit_hz, false);
  f("gpu_clock_events", &RankInfo::gpu_clock_events, false);
  f("gpu_ecc_errors", &RankInfo::gpu_ecc_errors, false);
  f("gpu_nvlinks", &RankInfo::gpu_nvlinks, false);
  f("gpu_nvlinks_down", &RankInfo::gpu_nvlinks_down, false);
  f("gpu_nvlink_bytes_per_s", &RankInfo::gpu_nvlink_bytes_per_s, false);
  f("gpu_links", &RankInfo::gpu_links, false);
  f("gpu_unreached", &RankInfo::gpu_unreached, false);
  f("gpu_hidden", &RankInfo::gpu_hidden, false);
  f("nics", &RankInfo::nics, false);
}

/// What this process finds out about its host, CPUs and memory, by hwloc. Rank and GPU are left.
RankInfo this_rank(std::int64_t rank, std::int64_t threads);

/// A rank as one line of text and back, so that the ranks can be gathered as strings.
std::string to_text(const RankInfo& info);
RankInfo rank_from_text(const std::string& text);

/// One sentence for each way in which a rank differs from most others, and for ranks of one host
/// that share CPUs: a mixed or badly bound machine spoils a measurement. Empty: all agree.
std::vector<std::string> differences(std::span<const RankInfo> ranks);

/// The NUMA node of a PCI slot of this host, as the kernel says; empty if it does not.
/// @param pci "0000:3b:00.0", in either case
std::string numa_node_of(std::string pci);

/// One sentence for each rank whose place or board is worse than it could be, even if all ranks are
/// alike: a GPU on another NUMA node than the rank's CPUs, or than every network card where there
/// are several hosts; a power or clock limit below the board's own; a clock that heat or the power
/// supply held down at the start; ECC off, or errors that it could not correct; NVLinks that are
/// down; more threads than CPUs. And for pairs of a host whose GPUs cannot reach each other. What
/// nobody says is not judged. No names of hosts. Empty: nothing was found.
std::vector<std::string> warnings(std::span<const RankInfo> ranks);

/// Facts of one run.
struct RunInfo {
  std::string uuid;
  std::string start;  ///< ISO 8601, UTC
  std::vector<std::string> argv;
  std::int64_t ranks = 1;
  std::int64_t seed = 0;
};

/// Takes the start time and a fresh random uuid (RFC 4122, version 4).
RunInfo begin_run(int argc, const char* const* argv, std::int64_t ranks, std::int64_t seed);

/// The build (release, git describe, compiler, flags, library versions) and the HDF5 in use.
/// `extra` adds what only upper folders know: the MPI library's own string, CUDA's driver.
Fields software(const Fields& extra);

/// The text with each absolute path in it cut to its last part: "--out=/runs/a.h5" becomes
/// "--out=a.h5". Results are published, and the folders of a machine or a person are nobody's
/// business. A path begins the text or follows one of "=:;, " and quotes.
std::string without_folders(std::string_view text);

/// Names of the shared libraries that this process has loaded, sorted.
std::vector<std::string> loaded_libraries();

/// A file that the run read or wrote.
struct FileRecord {
  std::string path;  ///< without folders if it was absolute
  std::int64_t bytes = 0;
  std::string sha256;  ///< empty above the limit
};

/// Looks at a file; hashes it if it has at most `hash_limit_bytes` (default: some seconds of work).
FileRecord record_file(const std::filesystem::path& path,
                       std::int64_t hash_limit_bytes = std::int64_t{1} << 30);

}  // namespace stowage::results
