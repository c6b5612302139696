// Rotary positions on the queries and keys of (n, (H + 2 K) P); formula in rope.hpp.
//
// Bound by memory. A thread owns a pack of 16 bytes of the first half of a head, its pair in the
// second half, and one token: it makes cosine and sine of its angles once and uses them for kHeads
// heads, all under way meanwhile. Neighbouring blocks have the other heads of the same tokens, so
// that the bytes under way lie close together. The angle in turns and its reduction to
// [-1/2, 1/2] are fp64, because an fp32 angle has lost half of its digits at position 10^5;
// theta^(-2i/R) is a product of powers by squares, which the host makes; scaling is fp64, too. Sine
// and cosine of the reduced angle are fp32. Dimensions behind the R turned ones are copied by
// threads of their own, two packs each, too. Heads whose halves are not whole packs go element by
// element.
// Limit: 95 % of a copy of as many bytes; angles cost the rest.

#include <cmath>

#include "kernels/access.cuh"
#include "kernels/rope/rope_launch.hpp"

namespace stowage::kernels::rope {
namespace {

using device::Access;
using execution::Bf16;

constexpr int kThreads = 256;
constexpr int kHeads = 3;  // of a thread, all in flight

// ratio^(2^b) for each bit b of an index below half a head, ratio = theta^(-2/R).
struct Powers {
  static constexpr int kBits = 16;
  double of_bit[kBits];

  __device__ double power(int i) const {
    double product = 1;
#pragma unroll
    for (int b = 0; b < kBits; ++b)
      if ((i >> b & 1) != 0) product *= of_bit[b];
    return product;
  }
};

// Cosine and sine of the angles of kSize neighbouring pairs.
template <int kSize>
struct Turn {
  float cosine[kSize], sine[kSize];

  __device__ Turn(const Powers& powers, double direction, double position, int first) {
    double turns = direction * kTurnsPerRadian * position * powers.power(first);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      set(i, turns);
      turns *= powers.of_bit[0];
    }
  }
  __device__ Turn(const Powers& powers, const RopeFrequencies& frequencies, double direction,
                  double position, int first) {
    double frequency = powers.power(first);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      set(i, direction * kTurnsPerRadian * position * frequencies.scaled(frequency));
      frequency *= powers.of_bit[0];
    }
  }

 private:
  static constexpr double kTurnsPerRadian = 0.15915494309189533577;
  __device__ void set(int i, double turns) {
    sincospif(2 * static_cast<float>(turns - rint(turns)), &sine[i], &cosine[i]);
  }
};

template <class S, bool kPacked, bool kScaled>
__global__ void __launch_bounds__(kThreads)
    rotation_kernel(const Rotation<S> args, const __grid_constant__ Powers powers, int groups) {
  using Data = Access<S, kPacked>;
  using Bits = typename Data::Bits;
  const int dim = static_cast<int>(args.head_dim), half = static_cast<int>(args.rotary_dim) / 2;
  const int lanes = (args.in == args.out ? half : dim / 2) / Data::kSize;
  const std::int64_t thread = std::int64_t{blockIdx.x / groups} * kThreads + threadIdx.x;
  const std::int64_t token = thread / lanes;
  if (token >= args.tokens) return;
  const int first = static_cast<int>(thread % lanes) * Data::kSize;
  const int rotated = static_cast<int>(args.heads + args.kv_heads);
  const int all = rotated + (args.in == args.out ? 0 : static_cast<int>(args.kv_heads));
  const int begin = static_cast<int>(blockIdx.x % groups) * kHeads;
  const bool turned = first < half;
  const int pair = turned ? half : dim / 2 - half;  // from one of a pair to the other
  const std::int64_t at =
      token * (rotated + args.kv_heads) * dim + begin * dim + (turned ? first : half + first);
  const S* in = args.in + at;
  S* out = args.out + at;
  Bits low[kHeads], high[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (begin + h >= all) break;
    low[h] = Data::load(in + h * dim);
    high[h] = Data::load(in + h * dim + pair);
  }
  const auto position = static_cast<double>(
      args.positions != nullptr ? args.positions[token]
                                : args.first_token + token - args.cu_seqlens[args.seq_idx[token]]);
  const auto turn = [&] {
    if constexpr (kScaled)
      return Turn<Data::kSize>(powers, args.frequencies, args.direction, position, first);
    else
      return Turn<Data::kSize>(powers, args.direction, position, first);
  }();
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (begin + h >= all) break;
    if (!turned || begin + h >= rotated) {
      Data::store(out + h * dim, low[h]);
      Data::store(out + h * dim + pair, high[h]);
      continue;
    }
    float a[Data::kSize], b[Data::kSize];
    Data::unpack(low[h], a);
    Data::unpack(high[h], b);
#pragma unroll
    for (int i = 0; i < Data::kSize; ++i) {
      const float left = a[i], right = b[i];
      a[i] = left * turn.cosine[i] - right * turn.sine[i];
      b[i] = right * turn.cosine[i] + left * turn.sine[i];
    }
    Data::store(out + h * dim, a);
    Data::store(out + h * dim + pair, b);
  }
}

Powers powers_of(double theta, std::int64_t rotary_dim) {
  Powers powers{};
  for (int b = 0; b < Powers::kBits; ++b)
    powers.of_bit[b] =
        std::pow(theta, -2.0 * static_cast<double>(1 << b) / static_cast<double>(rotary_dim));
  return powers;
}

}  // namespace

template <class S>
int launch(const Rotation<S>& args, void* handle) {
  if (args.tokens == 0 || args.head_dim == 0) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(handle);
  const std::int64_t half = args.rotary_dim / 2, all = args.head_dim / 2;
  const bool packed = device::whole_packs<S>({half, all}, {args.in, args.out});
  const std::int64_t pairs = args.in == args.out ? half : all;
  const std::int64_t threads = args.tokens * pairs / (packed ? device::kPackSize<S> : 1);
  const bool scaled = args.frequencies.scales();
  const auto kernel =
      packed ? (scaled ? rotation_kernel<S, true, true> : rotation_kernel<S, true, false>)
             : (scaled ? rotation_kernel<S, false, true> : rotation_kernel<S, false, false>);
  const std::int64_t heads = args.heads + (args.in == args.out ? 1 : 2) * args.kv_heads;
  const std::int64_t groups = (heads + kHeads - 1) / kHeads;
  const std::int64_t blocks = (threads + kThreads - 1) / kThreads * groups;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      args, powers_of(args.frequencies.theta, args.rotary_dim), static_cast<int>(groups));
  return cudaGetLastError();
}

template int launch(const Rotation<float>&, void*);
template int launch(const Rotation<Bf16>&, void*);

}  // namespace stowage::kernels::rope
