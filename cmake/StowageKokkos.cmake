# Makes stowage::kokkos, a Kokkos with host execution spaces, version 3.4 to 5.x. Tried in order:
#   SYSTEM  find_package(Kokkos), with the distribution's Trilinos package mended
#   CACHE   scripts/build_kokkos.sh: built once per compiler from the distribution's source package
#   FETCH   FetchContent of a public release
# Only execution/ links it: a file that includes Kokkos takes seconds to compile.

# Asked for without a version, because Kokkos' own version file accepts only its major version.
macro(stowage_find_kokkos)
  find_package(Kokkos QUIET ${ARGN})
  if(Kokkos_FOUND AND (Kokkos_VERSION VERSION_LESS 3.4 OR Kokkos_VERSION VERSION_GREATER_EQUAL 6))
    message(STATUS "Kokkos ${Kokkos_VERSION} is not between 3.4 and 6: not used")
    set(Kokkos_FOUND FALSE)
  endif()
endmacro()

set(STOWAGE_KOKKOS_ORIGIN "")
if(STOWAGE_KOKKOS MATCHES "^(AUTO|SYSTEM)$")
  stowage_find_kokkos()
  if(Kokkos_FOUND)
    set(STOWAGE_KOKKOS_ORIGIN "${Kokkos_DIR}")
  endif()
endif()

if(NOT STOWAGE_KOKKOS_ORIGIN AND STOWAGE_KOKKOS MATCHES "^(AUTO|CACHE)$"
   AND EXISTS "${PROJECT_SOURCE_DIR}/scripts/build_kokkos.sh")
  unset(Kokkos_DIR CACHE)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env "CXX=${CMAKE_CXX_COMPILER}"
            "${PROJECT_SOURCE_DIR}/scripts/build_kokkos.sh"
    OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(NOT failed)
    stowage_find_kokkos(PATHS "${prefix}" NO_DEFAULT_PATH)
    if(Kokkos_FOUND)
      set(STOWAGE_KOKKOS_ORIGIN "${prefix}")
    endif()
  endif()
endif()

if(NOT STOWAGE_KOKKOS_ORIGIN AND STOWAGE_KOKKOS MATCHES "^(AUTO|FETCH)$" 
   AND PROJECT_NAME STREQUAL "stowage")
  set(STOWAGE_KOKKOS_URL https://github.com/kokkos/kokkos.git)
  # Asked before it is fetched: behind a firewall git would end the configuration with its own words.
  if(NOT FETCHCONTENT_SOURCE_DIR_KOKKOS)
    execute_process(COMMAND git ls-remote --exit-code "${STOWAGE_KOKKOS_URL}" 4.6.01
      OUTPUT_QUIET ERROR_VARIABLE unreachable RESULT_VARIABLE failed TIMEOUT 60)
    if(failed)
      string(STRIP "${unreachable}" unreachable)
      message(FATAL_ERROR
        "No Kokkos (3.4 <= version < 6) was found, and ${STOWAGE_KOKKOS_URL} is not reached "
        "(${unreachable}). Set Kokkos_ROOT to the prefix of an installed one, or "
        "FETCHCONTENT_SOURCE_DIR_KOKKOS to its sources.")
    endif()
  endif()
  include(FetchContent)
  set(Kokkos_ENABLE_SERIAL ON CACHE BOOL "")
  set(Kokkos_ENABLE_OPENMP ON CACHE BOOL "")
  FetchContent_Declare(Kokkos
    GIT_REPOSITORY "${STOWAGE_KOKKOS_URL}" GIT_TAG 4.6.01 GIT_SHALLOW ON SYSTEM)
  FetchContent_MakeAvailable(Kokkos)
  set(STOWAGE_KOKKOS_ORIGIN "fetched release")
  set(Kokkos_VERSION 4.6.1)
  set(Kokkos_DEVICES OPENMP SERIAL)
endif()

if(NOT STOWAGE_KOKKOS_ORIGIN)
  message(FATAL_ERROR
    "No Kokkos (3.4 <= version < 6) was found or could be built. Set Kokkos_ROOT to the prefix of one, "
    "or see scripts/build_kokkos.sh for what it needs (STOWAGE_KOKKOS is ${STOWAGE_KOKKOS}).")
endif()

# The Trilinos packages of Debian and Ubuntu point Kokkos::kokkos at an include directory that does
# not exist and install the library under another name.
get_target_property(interface_dirs Kokkos::kokkos INTERFACE_INCLUDE_DIRECTORIES)
set(STOWAGE_KOKKOS_MENDED OFF)
foreach(dir IN LISTS interface_dirs)
  if(IS_ABSOLUTE "${dir}" AND NOT EXISTS "${dir}")
    set(STOWAGE_KOKKOS_MENDED ON)
  endif()
endforeach()

add_library(stowage_kokkos INTERFACE IMPORTED GLOBAL)
add_library(stowage::kokkos ALIAS stowage_kokkos)
if(STOWAGE_KOKKOS_MENDED)
  find_library(STOWAGE_TRILINOS_KOKKOSCORE NAMES trilinos_kokkoscore kokkoscore REQUIRED)
  find_path(STOWAGE_TRILINOS_INCLUDE_DIR Kokkos_Core.hpp
    HINTS ${Kokkos_INCLUDE_DIRS} PATH_SUFFIXES trilinos REQUIRED)
  mark_as_advanced(STOWAGE_TRILINOS_KOKKOSCORE STOWAGE_TRILINOS_INCLUDE_DIR)
  target_include_directories(stowage_kokkos SYSTEM INTERFACE "${STOWAGE_TRILINOS_INCLUDE_DIR}")
  target_link_libraries(stowage_kokkos INTERFACE "${STOWAGE_TRILINOS_KOKKOSCORE}" ${CMAKE_DL_LIBS})
else()
  target_link_libraries(stowage_kokkos INTERFACE Kokkos::kokkos)
endif()
# Named here as well because Kokkos adds -fopenmp to links in the language CXX only.
if("OPENMP" IN_LIST Kokkos_DEVICES)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_link_libraries(stowage_kokkos INTERFACE OpenMP::OpenMP_CXX)
endif()
