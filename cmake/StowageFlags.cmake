# Compiler flags of our own targets; none of them reaches a user of the installed libraries.

include(GNUInstallDirs)

# A switch over an enumeration names each value: one more must not fall to a default in silence.
set(STOWAGE_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Werror=switch-enum)
# gcc 12 takes the assignment of a literal to a std::string for an overlap (GCC PR 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND STOWAGE_WARNINGS -Wno-restrict)
endif()
if(STOWAGE_WERROR)
  list(APPEND STOWAGE_WARNINGS -Werror)
endif()

# stowage_flags(<target>): warnings, host architecture, sanitizers, nvcc's switches.
function(stowage_flags target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${STOWAGE_WARNINGS}>)
  if(STOWAGE_HOST_ARCH)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-march=${STOWAGE_HOST_ARCH}>)
  endif()
  if(STOWAGE_SANITIZE)
    set(sanitize -fsanitize=${STOWAGE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    # These of `undefined` are a third of the time to compile. AddressSanitizer stops at a null pointer
    # and beyond an object too.
    set(left_out -fno-sanitize=null,alignment,object-size,vptr)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${sanitize};${left_out}>)
    target_link_options(${target} PRIVATE ${sanitize})
    # Instrumented code confuses gcc's flow analysis: it warns inside <regex> and other headers.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  endif()
  if(STOWAGE_PORTABLE)
    target_link_options(${target} PRIVATE -s -Wl,--gc-sections)  # what is copied should be small
  endif()
  if(STOWAGE_CUDA)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:-extended-lambda;--expt-relaxed-constexpr;-lineinfo;-Xcompiler=-Wall;-Xcompiler=-Wextra>")
  endif()
endfunction()

# What nearly every source includes, precompiled once for each kind of target: for libraries and for
# programs where STOWAGE_PRECOMPILE asks for it (stowage_precompile), for test programs always
# (stowage_test_headers). Presets without it show a missing include of a standard header.
set(STOWAGE_HEADERS <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map> <memory>
  <optional> <span> <stdexcept> <string> <string_view> <utility> <variant> <vector>
  <fmt/core.h> <fmt/format.h> <fmt/ranges.h>)

# gcc 12 forgets that precompiled headers are the system's, and warns of copies of std::string.
function(stowage_precompiled_warnings target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow$<SEMICOLON>-Wno-array-bounds>)
endfunction()

# stowage_precompile(<target> <kind>): kind is library, program, or own: a precompiled header serves
# only objects that are compiled with the same kind of position-independent code and the same switches
# of optimisation and OpenMP; a target that has others owns its headers.
function(stowage_precompile target kind)
  if(NOT STOWAGE_PRECOMPILE)
    return()
  endif()
  stowage_precompiled_warnings(${target})
  if(kind STREQUAL "own")
    target_precompile_headers(${target} PRIVATE ${STOWAGE_HEADERS})
  else()
    target_precompile_headers(${target} REUSE_FROM stowage_${kind}_headers)
  endif()
endfunction()

# The targets that own the precompiled headers; needs stowage_options and fmt.
function(stowage_make_headers)
  if(NOT STOWAGE_PRECOMPILE)
    return()
  endif()
  set(empty "${CMAKE_BINARY_DIR}/precompiled/empty.cpp")
  file(CONFIGURE OUTPUT "${empty}" CONTENT "int main() {}\n")
  add_library(stowage_library_headers OBJECT EXCLUDE_FROM_ALL "${empty}")
  add_executable(stowage_program_headers EXCLUDE_FROM_ALL "${empty}")
  foreach(target IN ITEMS stowage_library_headers stowage_program_headers)
    target_link_libraries(${target} PRIVATE stowage::options fmt::fmt)
    target_precompile_headers(${target} PRIVATE ${STOWAGE_HEADERS})
    stowage_flags(${target})
  endforeach()
endfunction()

# stowage_ptxas_check(<target>): ptxas reports registers and spills of every kernel; under the
# folders of STOWAGE_PTXAS_STRICT a spill or a serialised wgmma fails the build, under all of kernels/
# a serialised wgmma.
set(STOWAGE_PTXAS_STRICT kernels/activation kernels/attention kernels/conv1d kernels/conv_scan
  kernels/cross_entropy kernels/documents
  kernels/elementwise kernels/embedding/token_lists kernels/linear kernels/norm kernels/rope
  kernels/grouped_mlp/grouped_fc kernels/grouped_mlp/grouped_rows kernels/grouped_mlp/grouped_weight
  kernels/hopper kernels/microbatch kernels/optimizer kernels/ssd
  CACHE STRING "Folders, or beginnings of files, whose kernels may neither spill nor serialise wgmma")
mark_as_advanced(STOWAGE_PTXAS_STRICT)
find_program(STOWAGE_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(NOT STOWAGE_PYTHON)
  find_program(STOWAGE_PYTHON python3)
endif()
mark_as_advanced(STOWAGE_PYTHON)

function(stowage_ptxas_check target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>")
  set(launcher ${STOWAGE_PYTHON} "${PROJECT_SOURCE_DIR}/cmake/ptxas_check.py")
  foreach(folder IN LISTS STOWAGE_PTXAS_STRICT)
    list(APPEND launcher --strict "${PROJECT_SOURCE_DIR}/${folder}")
  endforeach()
  list(APPEND launcher --wgmma "${PROJECT_SOURCE_DIR}/kernels")
  set_target_properties(${target} PROPERTIES
    CUDA_COMPILER_LAUNCHER "${launcher};--;${CMAKE_CUDA_COMPILER_LAUNCHER}")
endfunction()
