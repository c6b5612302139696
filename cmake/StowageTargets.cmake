# The three functions of which every folder's CMakeLists.txt is made.
#
#   stowage_library(<name> SOURCES <file>... [CUDA_SOURCES <file.cu>...] [WGMMA_SOURCES <file.cu>...]
#                   [PUBLIC <target>...] [PRIVATE <target>...] [CUDA_LIBS <target>...])
#     One library per folder: target stowage_<name>, alias stowage::<name>. CUDA_SOURCES are compiled,
#     and CUDA_LIBS linked, only when STOWAGE_CUDA is ON; WGMMA_SOURCES as well, for sm_90a alone.
#     Without sources it is header-only.
#
#   stowage_driver(<name> SOURCES <file>... LIBS <target>...)
#     A program that people submit; installed.
#
#   stowage_test(NAME <folder>.<unit> SOURCES <file>... LIBS <target>... LABELS <label>...
#                [NP <ranks>...] [TIMEOUT <seconds, 120>] [THREADS <OpenMP threads, 2>]
#                [DEFINITIONS <def>...] [CUDA_SOURCES <file.cu>...] [WGMMA_SOURCES <file.cu>...])
#     GoogleTest cases, registered as <folder>.<suite>.<case>; with NP one ctest entry per number of
#     ranks, <folder>.<unit>.np<N>, through mpirun. Labels: unit | regression | lint,
#     plus gpu, mpi, slow. A gpu test skips itself (GTEST_SKIP) without a device.

include(StowageFlags)

# Carried by every target: the include root, the standard, STOWAGE_HAVE_CUDA.
add_library(stowage_options INTERFACE)
add_library(stowage::options ALIAS stowage_options)
target_compile_features(stowage_options INTERFACE cxx_std_20)
target_compile_definitions(stowage_options INTERFACE STOWAGE_HAVE_CUDA=$<BOOL:${STOWAGE_CUDA}>)
target_include_directories(stowage_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/stowage>)
target_link_libraries(stowage_options INTERFACE Threads::Threads)
if(STOWAGE_CUDA)
  target_link_libraries(stowage_options INTERFACE CUDA::cudart)
  add_custom_target(stowage_cuda_objects)  # all device code and nothing else: timed on its own
endif()
set_property(GLOBAL PROPERTY STOWAGE_INSTALL_TARGETS stowage_options)
if(STOWAGE_TESTS)
  add_custom_target(stowage_unit_tests)  # unit tests without MPI: what runs under the sanitizers
endif()

# Device code is an object library of its own, so that it can be built and timed apart.
function(stowage_cuda_objects target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "ARCHITECTURES" "SOURCES;LIBS")
  add_library(${target} OBJECT ${arg_SOURCES})
  target_link_libraries(${target} PUBLIC stowage::options ${arg_LIBS})
  stowage_flags(${target})
  stowage_ptxas_check(${target})
  if(arg_ARCHITECTURES)
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${arg_ARCHITECTURES}")
  endif()
  add_dependencies(stowage_cuda_objects ${target})
endfunction()

function(stowage_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;CUDA_SOURCES;WGMMA_SOURCES;PUBLIC;PRIVATE;CUDA_LIBS")
  set(target stowage_${name})
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  if(NOT STOWAGE_CUDA)
    set(arg_CUDA_SOURCES "")
    set(arg_WGMMA_SOURCES "")
    set(arg_CUDA_LIBS "")
  endif()
  if(arg_SOURCES OR arg_CUDA_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    target_link_libraries(${target}
      PUBLIC stowage::options ${arg_PUBLIC} ${arg_CUDA_LIBS} PRIVATE ${arg_PRIVATE})
    stowage_flags(${target})
    stowage_precompile(${target} ${arg_SOURCES})
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    if(arg_CUDA_SOURCES)
      stowage_cuda_objects(${target}_cuda
        SOURCES ${arg_CUDA_SOURCES} LIBS ${arg_PUBLIC} ${arg_CUDA_LIBS} ${arg_PRIVATE})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_cuda>)
    endif()
    if(arg_WGMMA_SOURCES)
      stowage_cuda_objects(${target}_wgmma ARCHITECTURES 90a-real
        SOURCES ${arg_WGMMA_SOURCES} LIBS ${arg_PUBLIC} ${arg_CUDA_LIBS} ${arg_PRIVATE})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_wgmma>)
    endif()
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE stowage::options ${arg_PUBLIC})
  endif()
  add_library(stowage::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY STOWAGE_INSTALL_TARGETS ${target})
  install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/" COMPONENT development
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/stowage/${folder}"
    FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
endfunction()

function(stowage_driver name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE stowage::options ${arg_LIBS})
  stowage_flags(${name})
  stowage_precompile(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT programs)
endfunction()

function(stowage_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg
    "" "NAME;TIMEOUT;THREADS" "SOURCES;LIBS;LABELS;NP;DEFINITIONS;CUDA_SOURCES;WGMMA_SOURCES")
  if(NOT arg_NAME MATCHES "^[a-z0-9_]+\\.[a-z0-9_.]+$")
    message(FATAL_ERROR "stowage_test: NAME must be <folder>.<unit>, not '${arg_NAME}'")
  endif()
  if(NOT arg_LABELS MATCHES "unit|regression|lint")
    message(FATAL_ERROR "stowage_test ${arg_NAME}: one label of unit, regression, lint")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  string(REGEX REPLACE "\\..*" "" folder "${arg_NAME}")
  string(REPLACE "." "_" program "test_${arg_NAME}")

  add_executable(${program} ${arg_SOURCES})
  target_compile_definitions(${program} PRIVATE ${arg_DEFINITIONS})
  target_link_libraries(${program} PRIVATE stowage::options ${arg_LIBS})
  stowage_flags(${program})
  target_precompile_headers(${program} REUSE_FROM stowage_test_headers)
  # gcc 12 forgets that precompiled headers are the system's, and warns of copies of std::string.
  target_compile_options(${program} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow>)
  set_target_properties(${program} PROPERTIES
    LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/ctest/bin")
  if(STOWAGE_CUDA AND arg_CUDA_SOURCES)
    stowage_cuda_objects(${program}_cuda SOURCES ${arg_CUDA_SOURCES} LIBS ${arg_LIBS} GTest::gtest)
    target_sources(${program} PRIVATE $<TARGET_OBJECTS:${program}_cuda>)
  endif()
  if(STOWAGE_CUDA AND arg_WGMMA_SOURCES)
    stowage_cuda_objects(${program}_wgmma ARCHITECTURES 90a-real
      SOURCES ${arg_WGMMA_SOURCES} LIBS ${arg_LIBS} GTest::gtest)
    target_sources(${program} PRIVATE $<TARGET_OBJECTS:${program}_wgmma>)
  endif()

  if("gpu" IN_LIST arg_LABELS)
    list(JOIN arg_NP " " ranks)
    set_property(GLOBAL APPEND PROPERTY STOWAGE_GPU_TESTS "${program} ${ranks}")
  endif()

  if(arg_NP)
    target_link_libraries(${program} PRIVATE stowage::test_mpi_main)
    stowage_test_ranks()
  else()
    if("unit" IN_LIST arg_LABELS AND NOT "mpi" IN_LIST arg_LABELS)
      add_dependencies(stowage_unit_tests ${program})
    endif()
    target_link_libraries(${program} PRIVATE GTest::gtest GTest::gtest_main)
    stowage_test_cases()
  endif()
endfunction()

# One ctest entry per case. Properties that are lists are set by a second script, after discovery:
# gtest_discover_tests splits them (CMake issue 19690).
macro(stowage_test_cases)
  include(GoogleTest)
  gtest_discover_tests(${program}
    TEST_PREFIX "${folder}." TEST_LIST ${program}_cases DISCOVERY_TIMEOUT 30
    PROPERTIES TIMEOUT ${arg_TIMEOUT})
  set(threads 2)
  if(arg_THREADS)
    set(threads ${arg_THREADS})
  endif()
  set(properties "${CMAKE_CURRENT_BINARY_DIR}/${program}_properties.cmake")
  file(WRITE "${properties}"
"foreach(case IN LISTS ${program}_cases)
  set_tests_properties(\"\${case}\" PROPERTIES LABELS \"${arg_LABELS}\"
    ENVIRONMENT \"OMP_NUM_THREADS=${threads};OMP_WAIT_POLICY=passive;OMP_PROC_BIND=false;OPENBLAS_NUM_THREADS=1\")
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${properties}")
endmacro()

# One ctest entry per number of ranks; the ranks count against ctest's parallel jobs.
macro(stowage_test_ranks)
  foreach(ranks IN LISTS arg_NP)
    add_test(NAME ${arg_NAME}.np${ranks}
      COMMAND ${STOWAGE_MPIRUN} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${program}>)
    set_tests_properties(${arg_NAME}.np${ranks} PROPERTIES
      TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS};mpi" PROCESSORS ${ranks}
      SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests"
      ENVIRONMENT "OMP_NUM_THREADS=1;OMP_PROC_BIND=false;OPENBLAS_NUM_THREADS=1")
  endforeach()
endmacro()
