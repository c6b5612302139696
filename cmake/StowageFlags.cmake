# Compiler flags of our own targets; none of them reaches a user of the installed libraries.

include(GNUInstallDirs)

set(STOWAGE_WARNINGS -Wall -Wextra -Wshadow -Wconversion)
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
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${sanitize}>)
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

# What nearly every source includes, precompiled: for all test programs once, by stowage_test_headers;
# for a library of many sources, stowage_precompile(<target> <sources>), where STOWAGE_PRECOMPILE asks
# for it.
set(STOWAGE_HEADERS <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map> <memory>
  <optional> <span> <stdexcept> <string> <string_view> <utility> <variant> <vector>
  <fmt/core.h> <fmt/format.h> <fmt/ranges.h>)
function(stowage_precompile target)
  list(LENGTH ARGN sources)
  if(STOWAGE_PRECOMPILE AND sources GREATER 7)
    target_precompile_headers(${target} PRIVATE ${STOWAGE_HEADERS})
  endif()
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
