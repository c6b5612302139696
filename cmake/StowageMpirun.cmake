# STOWAGE_MPIRUN: the command in front of "-np N program" in tests. Tests may start more ranks than
# there are cores and may run as root in a container; Open MPI refuses both unless told.
set(STOWAGE_MPIRUN "${MPIEXEC_EXECUTABLE}")
execute_process(COMMAND "${MPIEXEC_EXECUTABLE}" --version OUTPUT_VARIABLE version ERROR_QUIET)
if(version MATCHES "Open MPI|OpenRTE|prte")
  list(APPEND STOWAGE_MPIRUN --oversubscribe --bind-to none)
  execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(user EQUAL 0)
    list(APPEND STOWAGE_MPIRUN --allow-run-as-root)
  endif()
endif()
