# cmake -P: install, configure, build, run; every step must succeed.
set(prefix "${SCRATCH}/prefix")
set(consumer "${SCRATCH}/consumer")
file(REMOVE_RECURSE "${prefix}" "${consumer}")

function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

step(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${prefix}")
if(NOT EXISTS "${prefix}/share/stowage/machines/h200.toml")
  message(FATAL_ERROR "stowage_plan --machine h200 finds no machine beside installed programs")
endif()
step(${CMAKE_COMMAND} -S "${SOURCE}" -B "${consumer}" -G "${GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DSANITIZE=${SANITIZE}"
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
step(${CMAKE_COMMAND} --build "${consumer}")
step("${consumer}/consumer")
