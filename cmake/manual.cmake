# Writes the manual pages of the installed programs, from what they say of themselves: NAME(1) by
# --help, stowage_deck(5) by --help-keys. Run by `cmake --install` where help2man is found, with
# the variables STOWAGE_* set that stand here.

set(ENV{OMPI_ALLOW_RUN_AS_ROOT} 1)
set(ENV{OMPI_ALLOW_RUN_AS_ROOT_CONFIRM} 1)
set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")

function(manual_page name section program summary help)
  set(page "${root}/${STOWAGE_MAN_DIRECTORY}/man${section}/${name}.${section}")
  get_filename_component(folder "${page}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  execute_process(
    COMMAND "${STOWAGE_HELP2MAN}" --no-info --no-discard-stderr "--section=${section}" "--name=${summary}"
      "--help-option=${help}" "--version-string=${STOWAGE_VERSION}" "--source=Stowage ${STOWAGE_VERSION}"
      "--output=${page}" "${root}/${STOWAGE_BIN_DIRECTORY}/${program}"
    RESULT_VARIABLE code ERROR_VARIABLE said)
  if(code EQUAL 0)
    file(READ "${page}" text)
    string(TOUPPER "${program}" from)  # help2man names a page by its program
    string(TOUPPER "${name}" to)
    string(REPLACE ".TH ${from} " ".TH ${to} " text "${text}")
    string(REPLACE "\n${program} \\- " "\n${name} \\- " text "${text}")
    file(WRITE "${page}" "${text}")
    message(STATUS "Installing: ${page}")
  else()
    message(WARNING "no manual page ${name}(${section}): ${said}")
  endif()
endfunction()

foreach(program IN LISTS STOWAGE_PROGRAMS)
  execute_process(COMMAND "${root}/${STOWAGE_BIN_DIRECTORY}/${program}" --help OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "^[^\n]*[^.\n]" summary "${text}")
  manual_page("${program}" 1 "${program}" "${summary}" --help)
endforeach()
manual_page(stowage_deck 5 stowage_plan "keys of a deck, the input file of Stowage's programs"
  --help-keys)
