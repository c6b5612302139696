# The functions of which the CMakeLists.txt of every folder of the product is made; those of tests are
# in StowageTests.cmake.
#
#   stowage_library(<name> SOURCES <file>... [CUDA_SOURCES <file.cu>...] [WGMMA_SOURCES <file.cu>...]
#                   [PUBLIC <target>...] [PRIVATE <target>...] [CUDA_LIBS <target>...]
#                   [OWN_SWITCHES])
#     One library per folder: target stowage_<name>, alias stowage::<name>. CUDA_SOURCES are compiled,
#     and CUDA_LIBS linked, only when STOWAGE_CUDA is ON; WGMMA_SOURCES as well, for sm_90a alone.
#     Without sources it is header-only. OWN_SWITCHES: its host code has compiler switches that others
#     have not.
#
#   stowage_sections(<file>...)
#     Rows of decks, which stand beside the structs that they fill. These files need headers alone;
#     compiled into stowage_deck, they make every program that reads a deck know all keys.
#
#   stowage_driver(<name> SOURCES <file>... LIBS <target>...)
#     A program that people submit; installed.

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
stowage_make_headers()
add_custom_target(stowage_programs)  # all that people submit

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
  cmake_parse_arguments(PARSE_ARGV 1 arg
    "OWN_SWITCHES" "" "SOURCES;CUDA_SOURCES;WGMMA_SOURCES;PUBLIC;PRIVATE;CUDA_LIBS")
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
    if(arg_OWN_SWITCHES)
      stowage_precompile(${target} own)
    else()
      stowage_precompile(${target} library)
    endif()
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

function(stowage_sections)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE sections)
  target_sources(stowage_deck PRIVATE ${sections})
endfunction()

function(stowage_driver name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  add_executable(${name} ${arg_SOURCES})
  add_dependencies(stowage_programs ${name})
  set_property(GLOBAL APPEND PROPERTY STOWAGE_PROGRAMS ${name})
  target_link_libraries(${name} PRIVATE stowage::options ${arg_LIBS})
  stowage_flags(${name})
  stowage_precompile(${name} program)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT programs)
endfunction()
