# cmake -P: install, configure, build, run; every step must succeed.
set(prefix "${SCRATCH}/prefix")
set(consumer "${SCRATCH}/consumer")
file(REMOVE_RECURSE "${prefix}" "${consumer}")

function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

step(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${prefix}")
# A folder without the source: decks, machines and batch scripts are those of the prefix.
file(MAKE_DIRECTORY "${SCRATCH}/elsewhere")
step(${CMAKE_COMMAND} -E chdir "${SCRATCH}/elsewhere"
  "${prefix}/bin/stowage_plan" quickstart --machine h200 data.source=synthetic data.path=)
foreach(file IN ITEMS inputs/quickstart.toml inputs/machines/h200.toml inputs/lengths/packed_65536.toml
                      slurm/job.sh slurm/one_gpu.sbatch accept/stowage_accept.py)
  if(NOT EXISTS "${prefix}/share/stowage/${file}")
    message(FATAL_ERROR "share/stowage/${file} is not installed")
  endif()
endforeach()
step("${prefix}/bin/stowage_accept" --help)
# The modulefile finds the prefix by its own place.
file(GLOB modulefile "${prefix}/share/stowage/modulefiles/stowage/*")
find_program(TCLSH NAMES tclsh tclsh8.6)
if(TCLSH)
  file(WRITE "${SCRATCH}/module.tcl"
    "foreach command {module-whatis conflict setenv} { proc $command args {} }\n"
    "proc prepend-path {name path} { if {![file isdirectory $path]} { error $path } }\n"
    "set ModulesCurrentModulefile {${modulefile}}\nsource {${modulefile}}\n"
    "if {![file executable $prefix/bin/stowage_train]} { error $prefix }\n")
  step(${TCLSH} "${SCRATCH}/module.tcl")
elseif(NOT modulefile)
  message(FATAL_ERROR "no modulefile is installed")
endif()
# Bash completes what the programs say of themselves, and decks of the prefix.
file(WRITE "${SCRATCH}/complete.sh" [=[
  source "$1/share/bash-completion/completions/stowage_plan"
  PATH=$1/bin:$PATH
  says() {
    _stowage stowage_plan "$1" "$2"
    [[ " ${COMPREPLY[*]} " == *" $3 "* ]] || { echo "'$2' '$1': ${COMPREPLY[*]}" && exit 1; }
  }
  says model.hidd '' model.hidden_size=
  says model.hidd --help-key model.hidden_size
  says --help-k '' --help-keys
  says quick '' quickstart
  complete -p stowage_plan
]=])
step(bash "${SCRATCH}/complete.sh" "${prefix}")
find_program(HELP2MAN help2man)
if(HELP2MAN)
  foreach(page IN ITEMS man1/stowage_train.1 man5/stowage_deck.5)
    file(READ "${prefix}/share/man/${page}" text)
    if(NOT text MATCHES "language model|hidden_size")
      message(FATAL_ERROR "${page} does not say what the program says")
    endif()
  endforeach()
endif()
step(${CMAKE_COMMAND} -E env --unset=STOWAGE_BIN --unset=STOWAGE_SOURCE bash -c
  "source '${prefix}/share/stowage/slurm/job.sh' && test -x \"$STOWAGE_BIN/stowage_train\"")
step(${CMAKE_COMMAND} -S "${SOURCE}" -B "${consumer}" -G "${GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DSANITIZE=${SANITIZE}"
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
step(${CMAKE_COMMAND} --build "${consumer}")
step("${consumer}/consumer")
