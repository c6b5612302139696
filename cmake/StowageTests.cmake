# The functions of which the CMakeLists.txt of every folder of ctest/ is made.
#
#   stowage_test(NAME <folder>.<unit> SOURCES <file>... LIBS <target>... LABELS <label>...
#                [NP <ranks>...] [TIMEOUT <seconds, 120>] [THREADS <OpenMP threads, 2>] [NEEDS_CUDA]
#                [OPTIMISED] [DEFINITIONS <def>...] [CUDA_SOURCES <file.cu>...] [WGMMA_SOURCES <file.cu>...])
#     A GoogleTest program and its entry in ctest, <folder>.<unit>. NP: one entry for each number of
#     ranks, <folder>.<unit>.np<N>, through mpirun. Labels: unit | regression | lint, plus gpu, mpi,
#     matrix, slow. A gpu test skips itself (GTEST_SKIP) without a device. NEEDS_CUDA: it is made in
#     builds with CUDA alone, so preset asan has no such test. OPTIMISED: what it computes takes minutes
#     under sanitizers, so it is not among those that run there.
#
#   stowage_process_tests(NAME <folder>.<unit> SCRIPT <file.py> [ARGUMENTS <arg>...] [TIMEOUT <seconds, 300>]
#                         [LABELS <label>...] [PROPERTIES <property> <value>...])
#     Tests of whole processes: one entry for each case of the script, <folder>.<unit>.<case>. The script
#     declares its cases, as ctest/support/process_cases.py says.
#
# PROCESSORS of an entry is half of its ranks: they wait for one another half the time, and a rank that
# waits leaves its core to others. So a test of four ranks runs beside others, not alone at the end.
#
# COST of an entry is its TIMEOUT: the first run of a build folder starts the longest tests first, as
# later runs do by their measured times.
#
# Labels that follow from these: `fast` for unit tests of one process without a GPU that are not slow,
# `sanitized` for those that preset asan runs, `ranks` for NP, `process` for whole processes.

add_custom_target(stowage_unit_tests)  # those with the label sanitized
add_custom_target(stowage_fast_tests)  # what `ctest --preset fast` runs

# Adds a program to the fast tests of all folders, and to stowage_fast_tests_<folder>.
function(stowage_fast_test folder program)
  if(NOT TARGET stowage_fast_tests_${folder})
    add_custom_target(stowage_fast_tests_${folder})
    add_dependencies(stowage_fast_tests stowage_fast_tests_${folder})
  endif()
  add_dependencies(stowage_fast_tests_${folder} ${program})
endfunction()

function(stowage_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg
    "NEEDS_CUDA;OPTIMISED" "NAME;TIMEOUT;THREADS" "SOURCES;LIBS;LABELS;NP;DEFINITIONS;CUDA_SOURCES;WGMMA_SOURCES")
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
  set(one_process OFF)
  if("unit" IN_LIST arg_LABELS AND NOT arg_NP AND NOT arg_NEEDS_CUDA
      AND NOT arg_LABELS MATCHES "mpi|gpu|lint")
    set(one_process ON)
  endif()
  if(one_process AND NOT arg_OPTIMISED)
    if(NOT STOWAGE_UNIT_TESTS)  # its name stays known
      add_test(NAME ${arg_NAME} COMMAND ${CMAKE_COMMAND} -E false)
      set_tests_properties(${arg_NAME} PROPERTIES DISABLED TRUE)
      return()
    endif()
    list(APPEND arg_LABELS sanitized)
  endif()

  add_executable(${program} ${arg_SOURCES})
  target_compile_definitions(${program} PRIVATE ${arg_DEFINITIONS})
  target_link_libraries(${program} PRIVATE stowage::options ${arg_LIBS})
  stowage_flags(${program})
  # A fourth of the time to compile them; what takes long in tests lies in the libraries.
  target_compile_options(${program} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  target_precompile_headers(${program} REUSE_FROM stowage_test_headers)
  stowage_precompiled_warnings(${program})
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
    if("sanitized" IN_LIST arg_LABELS)
      add_dependencies(stowage_unit_tests ${program})
    endif()
    if(one_process)
      set(other_costs ${arg_LABELS})
      list(FILTER other_costs INCLUDE REGEX "^(gpu|slow|matrix)$")
      if(NOT other_costs)
        list(APPEND arg_LABELS fast)
        stowage_fast_test(${folder} ${program})
      endif()
    endif()
    target_link_libraries(${program} PRIVATE GTest::gtest GTest::gtest_main)
    stowage_test_program()
  endif()
endfunction()

# How GoogleTest ends where all cases were skipped. A skip counts before a failure in ctest, so what
# follows must not be a list of those that failed.
set(STOWAGE_ALL_SKIPPED
  "\\[  PASSED  \\] 0 tests\\.[\r\n]+(\\[  SKIPPED \\] [^\r\n]*[\r\n]+)+[^[]*$")

# What the environment of tests holds. More tests run at a time than there are cores: threads that
# wait leave theirs. Python's bytecode lies in the build folder, and none beside the sources.
set(STOWAGE_ONE_PROCESS OMP_WAIT_POLICY=passive OMP_PROC_BIND=false OPENBLAS_NUM_THREADS=1)
set(STOWAGE_BYTECODE PYTHONPYCACHEPREFIX=${CMAKE_BINARY_DIR}/pycache)

# The environment of tests that start MPI, by their labels. A start of MPI reads the registers of all
# PCI devices, which takes 20 to 90 ms a process in a virtual machine. Only tests with a GPU need to
# know of devices.
function(stowage_mpi_environment result labels)
  set(all OPENBLAS_NUM_THREADS=1 ${ARGN})
  if(NOT "gpu" IN_LIST labels)
    list(APPEND all HWLOC_COMPONENTS=-linuxio,-pci)
  endif()
  set(${result} "${all}" PARENT_SCOPE)
endfunction()

# One ctest entry for the program. GTEST_FILTER in the environment names some of its cases.
macro(stowage_test_program)
  if(NOT arg_THREADS)
    set(arg_THREADS 2)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${program})
  set_tests_properties(${arg_NAME} PROPERTIES
    TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} LABELS "${arg_LABELS}"
    SKIP_REGULAR_EXPRESSION "${STOWAGE_ALL_SKIPPED}"
    ENVIRONMENT "OMP_NUM_THREADS=${arg_THREADS};${STOWAGE_ONE_PROCESS}")
endmacro()

# What a test of so many ranks counts against ctest's parallel jobs.
function(stowage_processors ranks result)
  math(EXPR half "(${ranks} + 1) / 2")
  set(${result} ${half} PARENT_SCOPE)
endfunction()

# One ctest entry per number of ranks.
macro(stowage_test_ranks)
  stowage_mpi_environment(environment "${arg_LABELS}" OMP_NUM_THREADS=1 OMP_PROC_BIND=false)
  foreach(ranks IN LISTS arg_NP)
    stowage_processors(${ranks} processors)
    add_test(NAME ${arg_NAME}.np${ranks}
      COMMAND ${STOWAGE_MPIRUN} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${program}>)
    set_tests_properties(${arg_NAME}.np${ranks} PROPERTIES
      TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} LABELS "${arg_LABELS};mpi;ranks"
      PROCESSORS ${processors}
      SKIP_REGULAR_EXPRESSION "${STOWAGE_ALL_SKIPPED}"
      ENVIRONMENT "${environment}")
  endforeach()
endmacro()

function(stowage_process_tests)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;SCRIPT;TIMEOUT" "ARGUMENTS;LABELS;PROPERTIES")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  stowage_mpi_environment(environment "${arg_LABELS}"
    OMP_WAIT_POLICY=passive ${STOWAGE_BYTECODE})
  set(script "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${script}")
  file(STRINGS "${script}" lines REGEX "^(@case|def [a-z])")
  set(ranks "")
  set(found 0)
  foreach(line IN LISTS lines)
    if(line MATCHES "^@case(\\(ranks=([0-9]+)\\))?$")
      set(ranks 1)
      if(CMAKE_MATCH_2)
        set(ranks ${CMAKE_MATCH_2})
      endif()
    elseif(line MATCHES "^@case")
      message(FATAL_ERROR "${script}: '${line}' is neither @case nor @case(ranks=N)")
    elseif(ranks AND line MATCHES "^def ([a-z0-9_]+)")
      set(name ${arg_NAME}.${CMAKE_MATCH_1})
      add_test(NAME ${name}
        COMMAND ${Python3_EXECUTABLE} "${script}" ${CMAKE_MATCH_1} ${arg_ARGUMENTS})
      stowage_processors(${ranks} processors)
      set_tests_properties(${name} PROPERTIES
        TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} PROCESSORS ${processors}
        LABELS "regression;process;${arg_LABELS}" SKIP_RETURN_CODE 77
        ENVIRONMENT "${environment}" ${arg_PROPERTIES})
      set(ranks "")
      math(EXPR found "${found} + 1")
    endif()
  endforeach()
  if(found EQUAL 0)
    message(FATAL_ERROR "${script} has no case")
  endif()
endfunction()
