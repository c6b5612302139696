# cmake -P: fills version.cpp.in. Run by every build; the file is touched only when it changes, so
# nothing is compiled again without a reason.
set(GIT_DESCRIBE unknown)
if(GIT)
  execute_process(COMMAND "${GIT}" -C "${SOURCE}" describe --always --dirty --tags
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(GIT_DESCRIBE "${described}")
  endif()
endif()
configure_file("${INPUT}" "${OUTPUT}" @ONLY)
