#include "results/environment.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "results/provenance.hpp"

namespace stowage::results {
namespace {

/// Variables by family. A name that ends with '*' stands for all that begin so: parameters of one
/// part of a library, of which every version has others.
struct Family {
  std::string_view prefix;
  std::string_view names;  // in upper case, each between two blanks
};

constexpr std::array<Family, 8> kFamilies = {{
    {"CUDA_",
     " AUTO_BOOST CACHE_DISABLE CACHE_MAXSIZE DEVICE_MAX_CONNECTIONS DEVICE_ORDER DISABLE_PTX_JIT"
     " FORCE_PTX_JIT HOME LAUNCH_BLOCKING MANAGED_FORCE_DEVICE_ALLOC MODULE_LOADING"
     " MPS_ACTIVE_THREAD_PERCENTAGE MPS_PINNED_DEVICE_MEM_LIMIT SCALE_LAUNCH_QUEUES VERSION"
     " VISIBLE_DEVICES "},
    {"NCCL_",
     " ALGO ALLOC_P2P_NET_LL_BUFFERS BUFFSIZE CGA_CLUSTER_SIZE CHECKS_DISABLE CHECK_POINTERS"
     " COLLNET_ENABLE COMM_BLOCKING CONF_FILE CROSS_NIC CTA_POLICY CUMEM_ENABLE CUMEM_HOST_ENABLE"
     " DEBUG DEBUG_SUBSYS DMABUF_ENABLE GRAPH_MIXING_SUPPORT GRAPH_REGISTER IB_ADAPTIVE_ROUTING"
     " IB_ADDR_FAMILY IB_AR_THRESHOLD IB_CUDA_SUPPORT IB_DATA_DIRECT IB_DISABLE IB_ECE_ENABLE"
     " IB_FIFO_TC IB_GID_INDEX IB_HCA IB_MERGE_NICS IB_PCI_RELAXED_ORDERING IB_QPS_PER_CONNECTION"
     " IB_RETRY_CNT IB_RETURN_ASYNC_EVENTS IB_ROCE_VERSION_NUM IB_SL IB_SPLIT_DATA_ON_QPS IB_TC"
     " IB_TIMEOUT IGNORE_CPU_AFFINITY IGNORE_DISABLED_P2P L1_SHARED_MEMORY_CARVEOUT LAUNCH_MODE"
     " LEGACY_CUDA_REGISTER LL_THRESHOLD LOCAL_REGISTER MAX_CTAS MAX_NCHANNELS MAX_P2P_NCHANNELS"
     " MEM_SYNC_DOMAIN MIN_CTAS MIN_NCHANNELS MIN_P2P_NCHANNELS MNNVL_CLIQUE_ID MNNVL_ENABLE"
     " NCHANNELS_PER_NET_PEER NCHANNELS_PER_PEER NET NET_GDR_C2C NET_GDR_LEVEL NET_GDR_READ"
     " NET_PLUGIN NET_SHARED_BUFFERS NET_SHARED_COMMS NSOCKS_PERTHREAD NTHREADS NVB_DISABLE"
     " NVLSTREE_MAX_CHUNKSIZE NVLS_CHUNKSIZE NVLS_ENABLE NVLS_NCHANNELS NVTX_DISABLE"
     " OOB_NET_ENABLE OOB_NET_IFNAME P2P_DIRECT_DISABLE P2P_DISABLE P2P_LEVEL P2P_LL_THRESHOLD"
     " P2P_NET_CHUNKSIZE P2P_PXN_LEVEL PROFILER_PLUGIN PROTO PXN_C2C PXN_DISABLE RAS_ENABLE"
     " RUNTIME_CONNECT SET_STACK_SIZE SET_THREAD_NAME SHM_DISABLE SINGLE_PROC_MEM_REG_ENABLE"
     " SINGLE_RING_THRESHOLD SOCKET_FAMILY SOCKET_IFNAME SOCKET_NTHREADS SOCKET_RETRY_CNT"
     " SOCKET_RETRY_SLEEP_MSEC TOPO_FILE TREE_THRESHOLD TUNER_PLUGIN UID_STAGGER_RATE"
     " UID_STAGGER_THRESHOLD VERSION WIN_ENABLE WIN_STRIDE "},
    {"OMP_",
     " CANCELLATION DEFAULT_DEVICE DISPLAY_AFFINITY DISPLAY_ENV DYNAMIC MAX_ACTIVE_LEVELS NESTED"
     " NUM_THREADS PLACES PROC_BIND SCHEDULE STACKSIZE TARGET_OFFLOAD THREAD_LIMIT WAIT_POLICY "},
    {"OMPI_",
     " COMM_WORLD_LOCAL_RANK COMM_WORLD_LOCAL_SIZE COMM_WORLD_NODE_RANK COMM_WORLD_RANK"
     " COMM_WORLD_SIZE NUM_APP_CTX UNIVERSE_SIZE MCA_BTL MCA_BTL_* MCA_COLL MCA_COLL_* MCA_ESS"
     " MCA_HWLOC_BASE_* MCA_IO MCA_IO_* MCA_MPI_* MCA_MTL MCA_MTL_* MCA_OP MCA_OP_* MCA_OPAL_*"
     " MCA_OSC MCA_OSC_* MCA_PML MCA_PML_* MCA_RCACHE MCA_RCACHE_* MCA_RMAPS_BASE_* MCA_SHMEM"
     " MCA_SHMEM_* "},
    {"PMIX_", " BFROP_BUFFER_TYPE GDS_MODULE RANK SECURITY_MODE VERSION "},
    {"SLURM_",
     " ARRAY_JOB_ID ARRAY_TASK_COUNT ARRAY_TASK_ID CLUSTER_NAME CPUS_ON_NODE CPUS_PER_GPU"
     " CPUS_PER_TASK CPU_BIND CPU_BIND_LIST CPU_BIND_TYPE CPU_FREQ_REQ DISTRIBUTION GPUS"
     " GPUS_ON_NODE GPUS_PER_NODE GPUS_PER_TASK GPU_BIND GPU_FREQ HINT JOBID JOB_CPUS_PER_NODE"
     " JOB_GPUS JOB_ID JOB_NAME JOB_NODELIST JOB_NUM_NODES JOB_PARTITION LOCALID MEM_BIND"
     " MEM_BIND_LIST MEM_BIND_TYPE MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE MPI_TYPE NETWORK NNODES"
     " NODEID NODELIST NPROCS NTASKS NTASKS_PER_CORE NTASKS_PER_GPU NTASKS_PER_NODE"
     " NTASKS_PER_SOCKET PROCID RESTART_COUNT STEP_GPUS STEP_ID STEP_NODELIST STEP_NUM_NODES"
     " STEP_NUM_TASKS STEP_TASKS_PER_NODE TASKS_PER_NODE THREADS_PER_CORE "},
    {"STOWAGE_", " LAUNCHER PEER_DIR PRESET RANKS REQUEUE SEED SSD_TRITON TEST_REPLAYS TEST_SEED "},
    {"UCX_",
     " ACC_DEVICES BCOPY_THRESH CMA_* CUDA_COPY_* CUDA_IPC_* DC_* GDR_COPY_* IB_* LOG_LEVEL"
     " MAX_EAGER_RAILS MAX_RNDV_RAILS MEMTYPE_CACHE MEMTYPE_REG_WHOLE_ALLOC_TYPES NET_DEVICES"
     " POSIX_* PROTO_ENABLE RC_* REG_NONBLOCK_MEM_TYPES RNDV_* SHM_DEVICES SYSV_* TCP_* TLS UD_*"
     " WARN_UNUSED_ENV_VARS ZCOPY_THRESH "},
}};

/// What a name behind a '*' may not have in it: credentials and addresses.
constexpr std::array<std::string_view, 14> kRefusedParts = {
    "ADDR", "AUTH", "CERT", "COMMENT", "CRED",   "JWT", "KEY",
    "PASS", "PRIV", "PSK",  "PWD",     "SECRET", "TOK", "URI"};

std::string in_upper_case(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

bool is_among(std::string_view names, std::string_view rest) {
  if (names.find(fmt::format(" {} ", rest)) != std::string_view::npos) return true;
  for (std::size_t end = names.find("* "); end != std::string_view::npos;
       end = names.find("* ", end + 1)) {
    const std::size_t begin = names.rfind(' ', end) + 1;
    if (!rest.starts_with(names.substr(begin, end - begin))) continue;
    return std::ranges::none_of(kRefusedParts, [&](std::string_view part) {
      return rest.find(part) != std::string_view::npos;
    });
  }
  return false;
}

bool is_name(std::string_view name) {
  return std::ranges::all_of(name,
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

}  // namespace

bool is_allowed_variable(std::string_view name) {
  if (!is_name(name)) return false;
  const std::string upper = in_upper_case(name);
  return std::ranges::any_of(kFamilies, [&](const Family& family) {
    return upper.starts_with(family.prefix) &&
           is_among(family.names, std::string_view(upper).substr(family.prefix.size()));
  });
}

bool holds_address(std::string_view value) {
  if (value.find("://") != std::string_view::npos) return true;
  for (std::size_t at = value.find('@'); at != std::string_view::npos; at = value.find('@', at + 1))
    for (std::size_t i = at; i > 0; --i) {
      const char before = value[i - 1];
      if (before == ':') return true;
      if (before == '/' || before == '@' || std::isspace(static_cast<unsigned char>(before)) != 0)
        break;
    }
  return false;
}

Fields allowed_environment() {
  Fields fields;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals), value = text.substr(equals + 1);
    if (is_allowed_variable(name) && !holds_address(value))
      fields.push_back({std::string(name), without_folders(value)});
  }
  std::sort(fields.begin(), fields.end(),
            [](const Field& a, const Field& b) { return a.name < b.name; });
  return fields;
}

}  // namespace stowage::results
