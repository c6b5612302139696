#include "kernels/attention/attention_cuda.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <numbers>

#include "execution/error.hpp"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/hopper/tensor_map.hpp"

namespace stowage::kernels {
namespace {

using namespace attention;

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void check_shape(const AttentionLayout& s) {
  STOWAGE_ASSERT(s.tokens > 0 && s.tokens < (std::int64_t{1} << 31), "attention over {} tokens",
                 s.tokens);
  STOWAGE_ASSERT(s.kv_heads > 0 && s.heads % s.kv_heads == 0,
                 "{} query heads do not share {} key-value heads", s.heads, s.kv_heads);
  STOWAGE_ASSERT(s.head_dim > 0 && s.head_dim <= 256 && s.head_dim % 8 == 0,
                 "head dimension {} is not a multiple of 8 up to 256", s.head_dim);
  STOWAGE_ASSERT(
      s.q_stride % 8 == 0 && s.k_stride % 8 == 0 && s.v_stride % 8 == 0 && s.o_stride % 8 == 0,
      "row strides {}, {}, {}, {} are not multiples of 8 elements", s.q_stride, s.k_stride,
      s.v_stride, s.o_stride);
  STOWAGE_ASSERT(s.documents > 0, "attention over {} documents", s.documents);
  STOWAGE_ASSERT(s.uniform_length <= 0 || s.uniform_length * s.documents <= s.tokens,
                 "{} documents of {} tokens in {} rows", s.documents, s.uniform_length, s.tokens);
}

struct Machine {
  int multiprocessors = 0;
  bool hopper = false;
};

Machine machine() {
  static const Machine found = [] {
    Machine m;
    int device = 0;
    int major = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
      status = cudaDeviceGetAttribute(&m.multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
      status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    }
    STOWAGE_ASSERT(status == cudaSuccess, "no CUDA device: {}", cudaGetErrorString(status));
    m.hopper = major == 9;
    return m;
  }();
  return found;
}

void check_launch(cudaError_t status, const char* kernel) {
  if (status != cudaSuccess) [[unlikely]] {
    execution::throw_call_failed("CUDA", kernel, static_cast<long long>(status),
                                 cudaGetErrorString(status), std::source_location::current());
  }
}

/// Whether the tensor-core kernels serve this call.
bool fast(const AttentionLayout& s) {
  return machine().hopper && (s.head_dim == 64 || s.head_dim == 128);
}

/// Heads whose keys and values are read side by side: as many as keep them within half of the L2
/// cache, whole groups of query heads, a divisor of `heads`.
int heads_per_section(const AttentionLayout& s, int heads) {
  constexpr double kL2Share = 24e6;
  const double length =
      s.uniform_length > 0 ? static_cast<double>(s.uniform_length) : static_cast<double>(s.tokens);
  const double kv_bytes = length * s.head_dim * 2 * 2;
  const int fit = std::max(1, static_cast<int>(kL2Share / kv_bytes));
  int kv = std::min(fit, s.kv_heads);
  while (s.kv_heads % kv != 0) --kv;
  return heads / s.kv_heads * kv;
}

/// Byte offsets of what a call keeps in its workspace; parts of no use have no bytes.
struct Room {
  std::size_t tickets, order, first, wide, stored_at, limits, lse2, delta, stored, end;
  std::int64_t padded_rows;
  int kv_heads_at_once;  // taken by one pair of launches of the backward
  std::int64_t
      stored_per_head;  // dS blocks of a head, and of a document if they are equal; 0: none
};

/// Gives score gradients the room that the limit allows: for equal lengths, all of as many kv heads
/// at once as fit; for packed documents, an equal share for each head, which the shortest documents
/// get.
void plan_stored(const AttentionLayout& s, Room& room) {
  room.kv_heads_at_once = s.kv_heads;
  const std::int64_t group = s.heads / s.kv_heads;
  const std::int64_t blocks = s.stored_limit_bytes / kStoredBytes;
  if (s.uniform_length > 0) {
    const std::int64_t per_head = stored_blocks(s.causal, s.uniform_length);
    auto at_once = static_cast<int>(
        std::min<std::int64_t>(s.kv_heads, blocks / (per_head * group * s.documents)));
    while (at_once > 0 && s.kv_heads % at_once != 0) --at_once;
    if (at_once == 0) return;
    room.kv_heads_at_once = at_once;
    room.stored_per_head = per_head;
    room.end += static_cast<std::size_t>(at_once * group * s.documents * per_head * kStoredBytes);
  } else {
    room.stored_per_head = std::min(blocks / s.heads, stored_blocks(s.causal, s.tokens));
    room.end += static_cast<std::size_t>(s.heads * room.stored_per_head * kStoredBytes);
  }
}

Room make_room(const AttentionLayout& s, bool backward) {
  Room room{};
  const auto documents = static_cast<std::size_t>(s.documents);
  const auto heads = static_cast<std::size_t>(s.heads);
  const std::size_t table = s.uniform_length > 0 ? 0 : (documents + 1) * sizeof(int);
  const std::size_t wide_table = backward ? table : 0;
  room.order = aligned(3 * static_cast<std::size_t>(s.kv_heads) * sizeof(int));
  room.first = aligned(room.order + table);
  room.wide = aligned(room.first + table);
  room.stored_at = aligned(room.wide + wide_table);
  room.limits = aligned(room.stored_at + wide_table);
  room.lse2 = aligned(room.limits + 2 * sizeof(int));
  room.end = room.lse2;
  if (!backward) return room;
  room.padded_rows = s.uniform_length > 0 ? s.documents * ((s.uniform_length + 127) / 128 * 128)
                                          : (s.tokens + std::int64_t{128} * s.documents) / 64 * 64;
  const auto rows = static_cast<std::size_t>(std::max(room.padded_rows, s.tokens));
  const std::size_t statistics = heads * rows * sizeof(float);
  room.delta = aligned(room.lse2 + statistics);
  room.stored = aligned(room.delta + statistics);
  room.end = room.stored;
  if (fast(s)) plan_stored(s, room);
  return room;
}

template <class T>
T* at(void* workspace, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<unsigned char*>(workspace) + offset);
}

TileSchedule make_schedule(const AttentionLayout& s, const Room& room, void* workspace,
                           const int* cu_seqlens, int ticket, int tile_rows, int heads,
                           bool longest_last) {
  TileSchedule schedule{};
  schedule.ticket = at<int>(workspace, room.tickets) + ticket;
  schedule.order = at<int>(workspace, room.order);
  schedule.first = at<int>(workspace, room.first);
  schedule.cu_seqlens = cu_seqlens;
  schedule.documents = s.documents;
  schedule.uniform_length = static_cast<int>(std::max<std::int64_t>(s.uniform_length, 0));
  schedule.tile_rows = tile_rows;
  schedule.heads = heads;
  schedule.heads_per_section = heads_per_section(s, heads);
  schedule.longest_last = longest_last;
  return schedule;
}

/// Clears the first ticket and orders packed documents.
void order_documents(const AttentionLayout& s, const Room& room, void* workspace,
                     const int* cu_seqlens, int tile_rows, bool backward, cudaStream_t stream) {
  ScheduleTables tables{};
  tables.ticket = at<int>(workspace, room.tickets);
  tables.order = at<int>(workspace, room.order);
  tables.first = at<int>(workspace, room.first);
  if (backward) {
    tables.wide = at<int>(workspace, room.wide);
    tables.stored_at = at<int>(workspace, room.stored_at);
    tables.limits = at<int>(workspace, room.limits);
  }
  tables.cu_seqlens = s.uniform_length > 0 ? nullptr : cu_seqlens;
  tables.documents = s.documents;
  tables.tile_rows = tile_rows;
  tables.capacity = room.stored_per_head;
  tables.causal = s.causal;
  check_launch(launch_attention_schedule(tables, stream), "attention_schedule_kernel");
}

/// A map of `heads` heads of 64-column panels over all rows, in boxes of `rows` rows of one head.
CUtensorMap head_map(const AttentionLayout& s, const void* base, std::int64_t stride, int heads,
                     int rows) {
  const auto panels = static_cast<std::uint64_t>(s.head_dim / 64);
  const std::uint64_t extents[] = {64, static_cast<std::uint64_t>(s.tokens),
                                   static_cast<std::uint64_t>(heads) * panels};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(stride) * 2, 128};
  const std::uint32_t box[] = {64, static_cast<std::uint32_t>(rows),
                               static_cast<std::uint32_t>(panels)};
  return hopper::make_tensor_map(hopper::TensorMapType::bf16, base, extents, strides, box,
                                 hopper::Swizzle::b128);
}

const void* columns(const void* base, int head, int head_dim) {
  return static_cast<const std::uint16_t*>(base) + std::int64_t{head} * head_dim;
}

void* columns(void* base, int head, int head_dim) {
  return static_cast<std::uint16_t*>(base) + std::int64_t{head} * head_dim;
}

/// The maps for `kv_heads` kv heads from `kv`, with query boxes of `query_rows`.
BackwardMaps backward_maps(const AttentionLayout& s, const AttentionBackwardPointers& a, int kv,
                           int kv_heads, int query_rows) {
  const int group = s.heads / s.kv_heads;
  BackwardMaps maps{};
  maps.q =
      head_map(s, columns(a.q, kv * group, s.head_dim), s.q_stride, kv_heads * group, query_rows);
  maps.d_o =
      head_map(s, columns(a.d_o, kv * group, s.head_dim), s.o_stride, kv_heads * group, query_rows);
  maps.k = head_map(s, columns(a.k, kv, s.head_dim), s.k_stride, kv_heads, kBackwardKeys);
  maps.v = head_map(s, columns(a.v, kv, s.head_dim), s.v_stride, kv_heads, kBackwardKeys);
  return maps;
}

void backward_delta(const AttentionLayout& s, const AttentionBackwardPointers& a, const Room& room,
                    cudaStream_t stream) {
  DeltaParameters p{};
  p.o = a.o;
  p.d_o = a.d_o;
  p.lse = a.lse;
  p.lse2 = at<float>(a.workspace, room.lse2);
  p.delta = at<float>(a.workspace, room.delta);
  p.ticket = at<int>(a.workspace, room.tickets);
  p.tickets = 3 * s.kv_heads;
  p.cu_seqlens = a.cu_seqlens;
  p.o_stride = s.o_stride;
  p.tokens = s.tokens;
  p.padded_rows = room.padded_rows;
  p.heads = s.heads;
  p.documents = s.documents;
  p.uniform_length = static_cast<int>(std::max<std::int64_t>(s.uniform_length, 0));
  check_launch(launch_attention_delta(s.head_dim, p, stream), "attention_delta_kernel");
}

BackwardParameters backward_parameters(const AttentionLayout& s, const AttentionBackwardPointers& a,
                                       const Room& room, int kv) {
  const int group = s.heads / s.kv_heads;
  BackwardParameters p{};
  p.dq = columns(a.dq, kv * group, s.head_dim);
  p.dk = columns(a.dk, kv, s.head_dim);
  p.dv = columns(a.dv, kv, s.head_dim);
  p.q_stride = s.q_stride;
  p.k_stride = s.k_stride;
  p.v_stride = s.v_stride;
  p.lse2 = at<float>(a.workspace, room.lse2) + kv * group * room.padded_rows;
  p.delta = at<float>(a.workspace, room.delta) + kv * group * room.padded_rows;
  p.padded_rows = room.padded_rows;
  p.stored = room.stored_per_head > 0 ? at<unsigned char>(a.workspace, room.stored) : nullptr;
  p.stored_per_head = room.stored_per_head;
  p.stored_at = at<int>(a.workspace, room.stored_at);
  p.cu_seqlens = a.cu_seqlens;
  p.documents = s.documents;
  p.uniform_length = static_cast<int>(std::max<std::int64_t>(s.uniform_length, 0));
  p.heads = room.kv_heads_at_once * group;
  p.heads_per_kv = group;
  p.scale = s.scale;
  p.scale_log2 = s.scale * std::numbers::log2e_v<float>;
  return p;
}

/// Both parts for the kv heads from `kv` that are taken at once, and the query heads that read
/// them.
void backward_heads(const AttentionLayout& s, const AttentionBackwardPointers& a, const Room& room,
                    int kv, cudaStream_t stream) {
  const int kv_heads = room.kv_heads_at_once;
  AttentionLayout part = s;
  part.heads = kv_heads * (s.heads / s.kv_heads);
  part.kv_heads = kv_heads;
  const int blocks = machine().multiprocessors;
  const int steps = s.head_dim == 64 ? kBackwardQueries64 : kBackwardQueries128;
  const auto schedule = [&](int ticket, int rows, int heads, bool longest_last) {
    return make_schedule(part, room, a.workspace, a.cu_seqlens, 3 * kv + ticket, rows, heads,
                         longest_last);
  };
  BackwardParameters p = backward_parameters(s, a, room, kv);
  p.schedule = schedule(0, kBackwardKeys, kv_heads, false);
  check_launch(
      launch_attention_backward_kv_sm90(
          s.head_dim, s.causal, backward_maps(s, a, kv, kv_heads, steps), p, blocks, stream),
      "attention_backward_kv_kernel");

  const bool stored = room.stored_per_head > 0;
  const bool packed = s.uniform_length <= 0;
  const int* limits = at<int>(a.workspace, room.limits);
  const BackwardMaps maps = backward_maps(s, a, kv, kv_heads, kRecomputeRows);
  if (packed || !stored) {
    p.schedule = schedule(1, kRecomputeRows, part.heads, s.causal);
    if (packed) p.schedule.end = limits;
    check_launch(launch_attention_backward_q_sm90(s.head_dim, s.causal, maps, p, blocks, stream),
                 "attention_backward_q_kernel");
  }
  if (stored) {
    p.schedule = schedule(2, kStoredRows, part.heads, s.causal);
    p.schedule.first = at<int>(a.workspace, room.wide);
    if (packed) p.schedule.begin = limits + 1;
    check_launch(
        launch_attention_backward_stored_sm90(s.head_dim, s.causal, maps, p, blocks, stream),
        "attention_backward_stored_kernel");
  }
}

SimpleParameters simple_parameters(const AttentionLayout& s) {
  SimpleParameters p{};
  p.q_stride = s.q_stride;
  p.k_stride = s.k_stride;
  p.v_stride = s.v_stride;
  p.o_stride = s.o_stride;
  p.tokens = s.tokens;
  p.heads = s.heads;
  p.heads_per_kv = s.heads / s.kv_heads;
  p.head_dim = s.head_dim;
  p.documents = s.documents;
  p.uniform_length = static_cast<int>(std::max<std::int64_t>(s.uniform_length, 0));
  p.scale = s.scale;
  p.causal = s.causal;
  return p;
}

void simple_forward(const AttentionLayout& s, const AttentionForwardPointers& a,
                    cudaStream_t stream) {
  SimpleParameters p = simple_parameters(s);
  p.q = a.q;
  p.k = a.k;
  p.v = a.v;
  p.o = a.o;
  p.lse = a.lse;
  p.cu_seqlens = a.cu_seqlens;
  check_launch(launch_attention_simple_forward(p, stream), "attention_simple_forward_kernel");
}

void simple_backward(const AttentionLayout& s, const AttentionBackwardPointers& a, const Room& room,
                     cudaStream_t stream) {
  SimpleParameters p = simple_parameters(s);
  p.q = a.q;
  p.k = a.k;
  p.v = a.v;
  p.d_o = a.d_o;
  p.o = const_cast<void*>(a.o);
  p.lse = const_cast<float*>(a.lse);
  p.delta = at<float>(a.workspace, room.delta);
  p.cu_seqlens = a.cu_seqlens;
  p.dq = a.dq;
  p.dk = a.dk;
  p.dv = a.dv;
  check_launch(launch_attention_simple_backward(p, stream), "attention_simple_backward");
}

}  // namespace

std::size_t attention_forward_cuda_workspace_bytes(const AttentionLayout& shape) {
  return make_room(shape, false).end;
}

std::size_t attention_backward_cuda_workspace_bytes(const AttentionLayout& shape) {
  return make_room(shape, true).end;
}

void attention_forward_cuda(const AttentionLayout& shape, const AttentionForwardPointers& args,
                            cudaStream_t stream) {
  check_shape(shape);
  if (!fast(shape)) return simple_forward(shape, args, stream);
  const int rows = forward_tile_rows(shape.head_dim);
  const Room room = make_room(shape, false);
  ForwardParameters p{};
  p.schedule = make_schedule(shape, room, args.workspace, args.cu_seqlens, 0, rows, shape.heads,
                             shape.causal);
  p.o = args.o;
  p.lse = args.lse;
  p.o_stride = shape.o_stride;
  p.tokens = shape.tokens;
  p.heads_per_kv = shape.heads / shape.kv_heads;
  p.scale = shape.scale;
  p.scale_log2 = shape.scale * std::numbers::log2e_v<float>;
  const CUtensorMap q = head_map(shape, args.q, shape.q_stride, shape.heads, rows);
  const CUtensorMap k = head_map(shape, args.k, shape.k_stride, shape.kv_heads, kForwardKeys);
  const CUtensorMap v = head_map(shape, args.v, shape.v_stride, shape.kv_heads, kForwardKeys);
  order_documents(shape, room, args.workspace, args.cu_seqlens, rows, false, stream);
  check_launch(launch_attention_forward_sm90(shape.head_dim, shape.causal, q, k, v, p,
                                             machine().multiprocessors, stream),
               "attention_forward_kernel");
}

void attention_backward_cuda(const AttentionLayout& shape, const AttentionBackwardPointers& args,
                             cudaStream_t stream) {
  check_shape(shape);
  const Room room = make_room(shape, true);
  if (!fast(shape)) return simple_backward(shape, args, room, stream);
  if (shape.uniform_length <= 0) {
    order_documents(shape, room, args.workspace, args.cu_seqlens, kBackwardKeys, true, stream);
  }
  backward_delta(shape, args, room, stream);
  for (int kv = 0; kv < shape.kv_heads; kv += room.kv_heads_at_once) {
    backward_heads(shape, args, room, kv, stream);
  }
}

}  // namespace stowage::kernels
