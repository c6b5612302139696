# Enables the CUDA language. Afterwards STOWAGE_CUDA is ON or OFF, and C++ sees STOWAGE_HAVE_CUDA 1 or 0.

if(STOWAGE_CUDA STREQUAL "AUTO")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(STOWAGE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(STOWAGE_NVCC)
      set(CMAKE_CUDA_COMPILER "${STOWAGE_NVCC}" CACHE FILEPATH "nvcc")
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(STOWAGE_CUDA ON)
  else()
    set(STOWAGE_CUDA OFF)
  endif()
endif()

if(STOWAGE_CUDA)
  # Real code for the architecture with its special features (wgmma, TMA); no PTX: it would not run
  # elsewhere. The shorthand -arch=sm_90a also runs a plain sm_90 pass, which rejects wgmma.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real CACHE STRING "CUDA architectures")
  endif()
  # Small kernels join blocks in clusters and wait for grids that have not ended: from 9.0 on.
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(NOT architecture MATCHES "^([0-9]+)[af]?(-real|-virtual)?$" OR CMAKE_MATCH_1 LESS 90)
      message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES: '${architecture}' is not a number from 90 on, "
        "as 90a-real (Hopper, with the kernels for its tensor cores), 100-real or 120-real")
    endif()
  endforeach()
  # Otherwise the static and the shared runtime are both linked as soon as CUDA::cudart is named.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
  # CMake before 3.26 does not know nvcc's C++20 switch and drops the standard without a word.
  if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
    list(APPEND CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
endif()
