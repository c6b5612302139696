#pragma once

#include <cstdint>

#include "kernels/hopper/wgmma_descriptor.cuh"

namespace stowage::kernels::hopper {

/// Orders the warpgroup's earlier register and shared-memory accesses before its next wgmma.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// Closes the group of wgmma issued so far.
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most `kPending` of the latest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Tells the compiler that the asynchronous product still owns these registers: no move, no reuse.
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

/// The same for packed bf16 pairs that are an A operand in flight.
template <int kCount>
__device__ __forceinline__ void pin_registers(std::uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

/// D (64 x kN fp32) = A (64 x 16) B (16 x kN) + (accumulate ? D : 0), one warpgroup; bf16 operands,
/// fp16 those of the functions whose names end in _f16.
///
/// Layout of the accumulator (PTX ISA, "wgmma D fragment"): with w the warp in the group, lane l,
/// g = l / 4 and t = l % 4, d[4 j + 0, 1] hold row 16 w + g, columns 8 j + 2 t and + 1, and
/// d[4 j + 2, 3] the same columns of row 16 w + g + 8. The A operand in registers has the same
/// shape: a[0] = (g, 2 t .. ), a[1] = (g + 8, 2 t ..), a[2] = (g, 8 + 2 t ..), a[3] = (g + 8, 8 + 2
/// t ..); so a product's result, rounded to bf16, is the next product's A operand without a
/// shuffle. `kTransA`, `kTransB`: 1 when that operand in shared memory is MN-major.
template <int kN>
struct Wgmma;

#define STOWAGE_WGMMA_NAMES_8 "%0, %1, %2, %3"
#define STOWAGE_WGMMA_NAMES_16 STOWAGE_WGMMA_NAMES_8 ", %4, %5, %6, %7"
#define STOWAGE_WGMMA_NAMES_24 STOWAGE_WGMMA_NAMES_16 ", %8, %9, %10, %11"
#define STOWAGE_WGMMA_NAMES_32 STOWAGE_WGMMA_NAMES_24 ", %12, %13, %14, %15"
#define STOWAGE_WGMMA_NAMES_40 STOWAGE_WGMMA_NAMES_32 ", %16, %17, %18, %19"
#define STOWAGE_WGMMA_NAMES_48 STOWAGE_WGMMA_NAMES_40 ", %20, %21, %22, %23"
#define STOWAGE_WGMMA_NAMES_56 STOWAGE_WGMMA_NAMES_48 ", %24, %25, %26, %27"
#define STOWAGE_WGMMA_NAMES_64 STOWAGE_WGMMA_NAMES_56 ", %28, %29, %30, %31"
#define STOWAGE_WGMMA_NAMES_72 STOWAGE_WGMMA_NAMES_64 ", %32, %33, %34, %35"
#define STOWAGE_WGMMA_NAMES_80 STOWAGE_WGMMA_NAMES_72 ", %36, %37, %38, %39"
#define STOWAGE_WGMMA_NAMES_88 STOWAGE_WGMMA_NAMES_80 ", %40, %41, %42, %43"
#define STOWAGE_WGMMA_NAMES_96 STOWAGE_WGMMA_NAMES_88 ", %44, %45, %46, %47"
#define STOWAGE_WGMMA_NAMES_104 STOWAGE_WGMMA_NAMES_96 ", %48, %49, %50, %51"
#define STOWAGE_WGMMA_NAMES_112 STOWAGE_WGMMA_NAMES_104 ", %52, %53, %54, %55"
#define STOWAGE_WGMMA_NAMES_120 STOWAGE_WGMMA_NAMES_112 ", %56, %57, %58, %59"
#define STOWAGE_WGMMA_NAMES_128 STOWAGE_WGMMA_NAMES_120 ", %60, %61, %62, %63"
#define STOWAGE_WGMMA_NAMES_136 STOWAGE_WGMMA_NAMES_128 ", %64, %65, %66, %67"
#define STOWAGE_WGMMA_NAMES_144 STOWAGE_WGMMA_NAMES_136 ", %68, %69, %70, %71"
#define STOWAGE_WGMMA_NAMES_152 STOWAGE_WGMMA_NAMES_144 ", %72, %73, %74, %75"
#define STOWAGE_WGMMA_NAMES_160 STOWAGE_WGMMA_NAMES_152 ", %76, %77, %78, %79"
#define STOWAGE_WGMMA_NAMES_168 STOWAGE_WGMMA_NAMES_160 ", %80, %81, %82, %83"
#define STOWAGE_WGMMA_NAMES_176 STOWAGE_WGMMA_NAMES_168 ", %84, %85, %86, %87"
#define STOWAGE_WGMMA_NAMES_184 STOWAGE_WGMMA_NAMES_176 ", %88, %89, %90, %91"
#define STOWAGE_WGMMA_NAMES_192 STOWAGE_WGMMA_NAMES_184 ", %92, %93, %94, %95"
#define STOWAGE_WGMMA_NAMES_200 STOWAGE_WGMMA_NAMES_192 ", %96, %97, %98, %99"
#define STOWAGE_WGMMA_NAMES_208 STOWAGE_WGMMA_NAMES_200 ", %100, %101, %102, %103"
#define STOWAGE_WGMMA_NAMES_216 STOWAGE_WGMMA_NAMES_208 ", %104, %105, %106, %107"
#define STOWAGE_WGMMA_NAMES_224 STOWAGE_WGMMA_NAMES_216 ", %108, %109, %110, %111"
#define STOWAGE_WGMMA_NAMES_232 STOWAGE_WGMMA_NAMES_224 ", %112, %113, %114, %115"
#define STOWAGE_WGMMA_NAMES_240 STOWAGE_WGMMA_NAMES_232 ", %116, %117, %118, %119"
#define STOWAGE_WGMMA_NAMES_248 STOWAGE_WGMMA_NAMES_240 ", %120, %121, %122, %123"
#define STOWAGE_WGMMA_NAMES_256 STOWAGE_WGMMA_NAMES_248 ", %124, %125, %126, %127"

#define STOWAGE_WGMMA_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define STOWAGE_WGMMA_REGISTERS_8 STOWAGE_WGMMA_FOUR(0)
#define STOWAGE_WGMMA_REGISTERS_16 STOWAGE_WGMMA_REGISTERS_8, STOWAGE_WGMMA_FOUR(4)
#define STOWAGE_WGMMA_REGISTERS_24 STOWAGE_WGMMA_REGISTERS_16, STOWAGE_WGMMA_FOUR(8)
#define STOWAGE_WGMMA_REGISTERS_32 STOWAGE_WGMMA_REGISTERS_24, STOWAGE_WGMMA_FOUR(12)
#define STOWAGE_WGMMA_REGISTERS_40 STOWAGE_WGMMA_REGISTERS_32, STOWAGE_WGMMA_FOUR(16)
#define STOWAGE_WGMMA_REGISTERS_48 STOWAGE_WGMMA_REGISTERS_40, STOWAGE_WGMMA_FOUR(20)
#define STOWAGE_WGMMA_REGISTERS_56 STOWAGE_WGMMA_REGISTERS_48, STOWAGE_WGMMA_FOUR(24)
#define STOWAGE_WGMMA_REGISTERS_64 STOWAGE_WGMMA_REGISTERS_56, STOWAGE_WGMMA_FOUR(28)
#define STOWAGE_WGMMA_REGISTERS_72 STOWAGE_WGMMA_REGISTERS_64, STOWAGE_WGMMA_FOUR(32)
#define STOWAGE_WGMMA_REGISTERS_80 STOWAGE_WGMMA_REGISTERS_72, STOWAGE_WGMMA_FOUR(36)
#define STOWAGE_WGMMA_REGISTERS_88 STOWAGE_WGMMA_REGISTERS_80, STOWAGE_WGMMA_FOUR(40)
#define STOWAGE_WGMMA_REGISTERS_96 STOWAGE_WGMMA_REGISTERS_88, STOWAGE_WGMMA_FOUR(44)
#define STOWAGE_WGMMA_REGISTERS_104 STOWAGE_WGMMA_REGISTERS_96, STOWAGE_WGMMA_FOUR(48)
#define STOWAGE_WGMMA_REGISTERS_112 STOWAGE_WGMMA_REGISTERS_104, STOWAGE_WGMMA_FOUR(52)
#define STOWAGE_WGMMA_REGISTERS_120 STOWAGE_WGMMA_REGISTERS_112, STOWAGE_WGMMA_FOUR(56)
#define STOWAGE_WGMMA_REGISTERS_128 STOWAGE_WGMMA_REGISTERS_120, STOWAGE_WGMMA_FOUR(60)
#define STOWAGE_WGMMA_REGISTERS_136 STOWAGE_WGMMA_REGISTERS_128, STOWAGE_WGMMA_FOUR(64)
#define STOWAGE_WGMMA_REGISTERS_144 STOWAGE_WGMMA_REGISTERS_136, STOWAGE_WGMMA_FOUR(68)
#define STOWAGE_WGMMA_REGISTERS_152 STOWAGE_WGMMA_REGISTERS_144, STOWAGE_WGMMA_FOUR(72)
#define STOWAGE_WGMMA_REGISTERS_160 STOWAGE_WGMMA_REGISTERS_152, STOWAGE_WGMMA_FOUR(76)
#define STOWAGE_WGMMA_REGISTERS_168 STOWAGE_WGMMA_REGISTERS_160, STOWAGE_WGMMA_FOUR(80)
#define STOWAGE_WGMMA_REGISTERS_176 STOWAGE_WGMMA_REGISTERS_168, STOWAGE_WGMMA_FOUR(84)
#define STOWAGE_WGMMA_REGISTERS_184 STOWAGE_WGMMA_REGISTERS_176, STOWAGE_WGMMA_FOUR(88)
#define STOWAGE_WGMMA_REGISTERS_192 STOWAGE_WGMMA_REGISTERS_184, STOWAGE_WGMMA_FOUR(92)
#define STOWAGE_WGMMA_REGISTERS_200 STOWAGE_WGMMA_REGISTERS_192, STOWAGE_WGMMA_FOUR(96)
#define STOWAGE_WGMMA_REGISTERS_208 STOWAGE_WGMMA_REGISTERS_200, STOWAGE_WGMMA_FOUR(100)
#define STOWAGE_WGMMA_REGISTERS_216 STOWAGE_WGMMA_REGISTERS_208, STOWAGE_WGMMA_FOUR(104)
#define STOWAGE_WGMMA_REGISTERS_224 STOWAGE_WGMMA_REGISTERS_216, STOWAGE_WGMMA_FOUR(108)
#define STOWAGE_WGMMA_REGISTERS_232 STOWAGE_WGMMA_REGISTERS_224, STOWAGE_WGMMA_FOUR(112)
#define STOWAGE_WGMMA_REGISTERS_240 STOWAGE_WGMMA_REGISTERS_232, STOWAGE_WGMMA_FOUR(116)
#define STOWAGE_WGMMA_REGISTERS_248 STOWAGE_WGMMA_REGISTERS_240, STOWAGE_WGMMA_FOUR(120)
#define STOWAGE_WGMMA_REGISTERS_256 STOWAGE_WGMMA_REGISTERS_248, STOWAGE_WGMMA_FOUR(124)

// Operand numbers follow the kN / 2 accumulators: n0 is the first one.
#define STOWAGE_WGMMA_PRODUCTS(SUFFIX, TYPE, N, n0, n1, n2, n3, n4, n5, n6)                        \
  /** A and B in shared memory. */                                                                 \
  template <int kTransA = 0, int kTransB = 0>                                                      \
  __device__ static __forceinline__ void ss##SUFFIX(float(&d)[N / 2], std::uint64_t a,             \
                                                    std::uint64_t b, int accumulate) {             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n2                                          \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                   \
                 " {" STOWAGE_WGMMA_NAMES_##N "}, %" #n0 ", %" #n1 ", p, 1, 1, %" #n3 ", %" #n4    \
                                              ";\n}\n"                                             \
                 : STOWAGE_WGMMA_REGISTERS_##N                                                     \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));                   \
  }                                                                                                \
  /** A in registers, B in shared memory. */                                                       \
  template <int kTransB = 0>                                                                       \
  __device__ static __forceinline__ void rs##SUFFIX(                                               \
      float(&d)[N / 2], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,    \
      std::uint64_t b, int accumulate) {                                                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n5                                          \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                   \
                 " {" STOWAGE_WGMMA_NAMES_##N "}, {%" #n0 ", %" #n1 ", %" #n2 ", %" #n3 "}, %" #n4 \
                                              ", p, 1, 1, %" #n6 ";\n}\n"                          \
                 : STOWAGE_WGMMA_REGISTERS_##N                                                     \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate), "n"(kTransB));     \
  }
#define STOWAGE_WGMMA_SHAPE(N, n0, n1, n2, n3, n4, n5, n6)             \
  template <>                                                          \
  struct Wgmma<N> {                                                    \
    STOWAGE_WGMMA_PRODUCTS(, "bf16", N, n0, n1, n2, n3, n4, n5, n6)    \
    STOWAGE_WGMMA_PRODUCTS(_f16, "f16", N, n0, n1, n2, n3, n4, n5, n6) \
  };

STOWAGE_WGMMA_SHAPE(8, 4, 5, 6, 7, 8, 9, 10)
STOWAGE_WGMMA_SHAPE(16, 8, 9, 10, 11, 12, 13, 14)
STOWAGE_WGMMA_SHAPE(24, 12, 13, 14, 15, 16, 17, 18)
STOWAGE_WGMMA_SHAPE(32, 16, 17, 18, 19, 20, 21, 22)
STOWAGE_WGMMA_SHAPE(40, 20, 21, 22, 23, 24, 25, 26)
STOWAGE_WGMMA_SHAPE(48, 24, 25, 26, 27, 28, 29, 30)
STOWAGE_WGMMA_SHAPE(56, 28, 29, 30, 31, 32, 33, 34)
STOWAGE_WGMMA_SHAPE(64, 32, 33, 34, 35, 36, 37, 38)
STOWAGE_WGMMA_SHAPE(72, 36, 37, 38, 39, 40, 41, 42)
STOWAGE_WGMMA_SHAPE(80, 40, 41, 42, 43, 44, 45, 46)
STOWAGE_WGMMA_SHAPE(88, 44, 45, 46, 47, 48, 49, 50)
STOWAGE_WGMMA_SHAPE(96, 48, 49, 50, 51, 52, 53, 54)
STOWAGE_WGMMA_SHAPE(104, 52, 53, 54, 55, 56, 57, 58)
STOWAGE_WGMMA_SHAPE(112, 56, 57, 58, 59, 60, 61, 62)
STOWAGE_WGMMA_SHAPE(120, 60, 61, 62, 63, 64, 65, 66)
STOWAGE_WGMMA_SHAPE(128, 64, 65, 66, 67, 68, 69, 70)
STOWAGE_WGMMA_SHAPE(136, 68, 69, 70, 71, 72, 73, 74)
STOWAGE_WGMMA_SHAPE(144, 72, 73, 74, 75, 76, 77, 78)
STOWAGE_WGMMA_SHAPE(152, 76, 77, 78, 79, 80, 81, 82)
STOWAGE_WGMMA_SHAPE(160, 80, 81, 82, 83, 84, 85, 86)
STOWAGE_WGMMA_SHAPE(168, 84, 85, 86, 87, 88, 89, 90)
STOWAGE_WGMMA_SHAPE(176, 88, 89, 90, 91, 92, 93, 94)
STOWAGE_WGMMA_SHAPE(184, 92, 93, 94, 95, 96, 97, 98)
STOWAGE_WGMMA_SHAPE(192, 96, 97, 98, 99, 100, 101, 102)
STOWAGE_WGMMA_SHAPE(200, 100, 101, 102, 103, 104, 105, 106)
STOWAGE_WGMMA_SHAPE(208, 104, 105, 106, 107, 108, 109, 110)
STOWAGE_WGMMA_SHAPE(216, 108, 109, 110, 111, 112, 113, 114)
STOWAGE_WGMMA_SHAPE(224, 112, 113, 114, 115, 116, 117, 118)
STOWAGE_WGMMA_SHAPE(232, 116, 117, 118, 119, 120, 121, 122)
STOWAGE_WGMMA_SHAPE(240, 120, 121, 122, 123, 124, 125, 126)
STOWAGE_WGMMA_SHAPE(248, 124, 125, 126, 127, 128, 129, 130)
STOWAGE_WGMMA_SHAPE(256, 128, 129, 130, 131, 132, 133, 134)

#undef STOWAGE_WGMMA_SHAPE
#undef STOWAGE_WGMMA_PRODUCTS
#undef STOWAGE_WGMMA_FOUR
#undef STOWAGE_WGMMA_NAMES_8
#undef STOWAGE_WGMMA_REGISTERS_8
#undef STOWAGE_WGMMA_NAMES_16
#undef STOWAGE_WGMMA_REGISTERS_16
#undef STOWAGE_WGMMA_NAMES_24
#undef STOWAGE_WGMMA_REGISTERS_24
#undef STOWAGE_WGMMA_NAMES_32
#undef STOWAGE_WGMMA_REGISTERS_32
#undef STOWAGE_WGMMA_NAMES_40
#undef STOWAGE_WGMMA_REGISTERS_40
#undef STOWAGE_WGMMA_NAMES_48
#undef STOWAGE_WGMMA_REGISTERS_48
#undef STOWAGE_WGMMA_NAMES_56
#undef STOWAGE_WGMMA_REGISTERS_56
#undef STOWAGE_WGMMA_NAMES_64
#undef STOWAGE_WGMMA_REGISTERS_64
#undef STOWAGE_WGMMA_NAMES_72
#undef STOWAGE_WGMMA_REGISTERS_72
#undef STOWAGE_WGMMA_NAMES_80
#undef STOWAGE_WGMMA_REGISTERS_80
#undef STOWAGE_WGMMA_NAMES_88
#undef STOWAGE_WGMMA_REGISTERS_88
#undef STOWAGE_WGMMA_NAMES_96
#undef STOWAGE_WGMMA_REGISTERS_96
#undef STOWAGE_WGMMA_NAMES_104
#undef STOWAGE_WGMMA_REGISTERS_104
#undef STOWAGE_WGMMA_NAMES_112
#undef STOWAGE_WGMMA_REGISTERS_112
#undef STOWAGE_WGMMA_NAMES_120
#undef STOWAGE_WGMMA_REGISTERS_120
#undef STOWAGE_WGMMA_NAMES_128
#undef STOWAGE_WGMMA_REGISTERS_128
#undef STOWAGE_WGMMA_NAMES_136
#undef STOWAGE_WGMMA_REGISTERS_136
#undef STOWAGE_WGMMA_NAMES_144
#undef STOWAGE_WGMMA_REGISTERS_144
#undef STOWAGE_WGMMA_NAMES_152
#undef STOWAGE_WGMMA_REGISTERS_152
#undef STOWAGE_WGMMA_NAMES_160
#undef STOWAGE_WGMMA_REGISTERS_160
#undef STOWAGE_WGMMA_NAMES_168
#undef STOWAGE_WGMMA_REGISTERS_168
#undef STOWAGE_WGMMA_NAMES_176
#undef STOWAGE_WGMMA_REGISTERS_176
#undef STOWAGE_WGMMA_NAMES_184
#undef STOWAGE_WGMMA_REGISTERS_184
#undef STOWAGE_WGMMA_NAMES_192
#undef STOWAGE_WGMMA_REGISTERS_192
#undef STOWAGE_WGMMA_NAMES_200
#undef STOWAGE_WGMMA_REGISTERS_200
#undef STOWAGE_WGMMA_NAMES_208
#undef STOWAGE_WGMMA_REGISTERS_208
#undef STOWAGE_WGMMA_NAMES_216
#undef STOWAGE_WGMMA_REGISTERS_216
#undef STOWAGE_WGMMA_NAMES_224
#undef STOWAGE_WGMMA_REGISTERS_224
#undef STOWAGE_WGMMA_NAMES_232
#undef STOWAGE_WGMMA_REGISTERS_232
#undef STOWAGE_WGMMA_NAMES_240
#undef STOWAGE_WGMMA_REGISTERS_240
#undef STOWAGE_WGMMA_NAMES_248
#undef STOWAGE_WGMMA_REGISTERS_248
#undef STOWAGE_WGMMA_NAMES_256
#undef STOWAGE_WGMMA_REGISTERS_256

}  // namespace stowage::kernels::hopper
