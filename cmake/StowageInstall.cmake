# Install rules: programs, libraries with their headers, and the package for find_package(stowage).
# Headers go to include/stowage/<folder>/, which is on the include path of every stowage target, so
# that "#include "execution/error.hpp"" means the same in an installed copy.

include(CMakePackageConfigHelpers)

function(stowage_install_package)
  set(destination "${CMAKE_INSTALL_LIBDIR}/cmake/stowage")
  get_property(targets GLOBAL PROPERTY STOWAGE_INSTALL_TARGETS)
  install(TARGETS ${targets} EXPORT stowage
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
  install(EXPORT stowage NAMESPACE stowage:: FILE stowageTargets.cmake
    DESTINATION "${destination}" COMPONENT development)

  if(NOT STOWAGE_KOKKOS_PREFIX)
    set(STOWAGE_KOKKOS_PREFIX "${Kokkos_DIR}")
  endif()
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/stowageConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/stowageConfig.cmake" INSTALL_DESTINATION "${destination}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/stowageConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES
    "${PROJECT_BINARY_DIR}/stowageConfig.cmake" "${PROJECT_BINARY_DIR}/stowageConfigVersion.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/StowageDependencies.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/StowageKokkos.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindcuDNN.cmake"
    DESTINATION "${destination}" COMPONENT development)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/scripts/accept" "${PROJECT_SOURCE_DIR}/scripts/slurm"
    COMPONENT programs DESTINATION share/stowage USE_SOURCE_PERMISSIONS
    PATTERN __pycache__ EXCLUDE)
  # stowage_accept lies in the PATH; it finds its modules where the link leads.
  file(RELATIVE_PATH accept "/${CMAKE_INSTALL_BINDIR}" "/share/stowage/accept/stowage_accept.py")
  install(CODE "
    set(bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    file(MAKE_DIRECTORY \"\${bin}\")
    file(CREATE_LINK \"${accept}\" \"\${bin}/stowage_accept\" SYMBOLIC)" COMPONENT programs)
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/modulefile.tcl" COMPONENT programs
    DESTINATION share/stowage/modulefiles/stowage RENAME "${PROJECT_VERSION}")
  stowage_install_manual()
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/CITATION.cff"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT programs OPTIONAL)
endfunction()

# Manual pages are made of the installed programs' own help; bash loads a completion by the name of
# the program.
function(stowage_install_manual)
  get_property(targets GLOBAL PROPERTY STOWAGE_PROGRAMS)
  set(programs "")
  foreach(target IN LISTS targets)
    get_target_property(program ${target} OUTPUT_NAME)
    if(NOT program)
      set(program ${target})
    endif()
    list(APPEND programs ${program})
    install(FILES "${PROJECT_SOURCE_DIR}/cmake/completion.bash" COMPONENT programs
      DESTINATION share/bash-completion/completions RENAME "${program}")
  endforeach()
  find_program(STOWAGE_HELP2MAN help2man)
  mark_as_advanced(STOWAGE_HELP2MAN)
  if(STOWAGE_HELP2MAN)
    install(CODE "
      set(STOWAGE_HELP2MAN \"${STOWAGE_HELP2MAN}\")
      set(STOWAGE_PROGRAMS \"${programs}\")
      set(STOWAGE_BIN_DIRECTORY \"${CMAKE_INSTALL_BINDIR}\")
      set(STOWAGE_MAN_DIRECTORY \"${CMAKE_INSTALL_MANDIR}\")
      set(STOWAGE_VERSION \"${PROJECT_VERSION}\")" COMPONENT programs)
    install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/manual.cmake" COMPONENT programs)
  endif()
endfunction()
