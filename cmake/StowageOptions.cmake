# Everything that a user may choose at configure time. Presets set these; see CMakePresets.json.

set(STOWAGE_CUDA AUTO CACHE STRING "Build the cuda backend: AUTO (when nvcc is found), ON or OFF")
set_property(CACHE STOWAGE_CUDA PROPERTY STRINGS AUTO ON OFF)

set(STOWAGE_HDF5 AUTO CACHE STRING "HDF5 library: AUTO (parallel if there is one), PARALLEL or SERIAL")
set_property(CACHE STOWAGE_HDF5 PROPERTY STRINGS AUTO PARALLEL SERIAL)

set(STOWAGE_KOKKOS AUTO CACHE STRING
  "Kokkos: AUTO (all of the following, in order), SYSTEM, CACHE (the distribution's source) or FETCH")
set_property(CACHE STOWAGE_KOKKOS PROPERTY STRINGS AUTO SYSTEM CACHE FETCH)

set(STOWAGE_HOST_ARCH "" CACHE STRING "-march= for host code, such as native; empty: the compiler's")
set(STOWAGE_SANITIZE "" CACHE STRING "-fsanitize= for host code, such as address,undefined")
option(STOWAGE_PRECOMPILE "Precompile what nearly every source of libraries includes" OFF)
option(STOWAGE_TESTS "Build the regression suite" ON)
option(STOWAGE_UNIT_TESTS "In it the tests that preset asan has, those with the label sanitized" ON)
option(STOWAGE_WERROR "Treat warnings as errors" OFF)
option(STOWAGE_PORTABLE "Make programs that start when copied to another machine" OFF)

get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT CMAKE_BUILD_TYPE AND NOT multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
if(STOWAGE_PORTABLE)
  set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
  set(CMAKE_INSTALL_RPATH "$ORIGIN")
endif()
