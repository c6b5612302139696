# cmake -P: fills version.cpp.in. Run by every build; the file is touched only when it changes, so
# nothing is compiled again without a reason. The sources of a bundle name their commit in COMMIT; it
# is theirs as long as their SHA256SUMS hold.
set(GIT_DESCRIBE unknown)
if(EXISTS "${SOURCE}/COMMIT" AND EXISTS "${SOURCE}/SHA256SUMS")
  file(STRINGS "${SOURCE}/COMMIT" GIT_DESCRIBE LIMIT_COUNT 1)
  execute_process(COMMAND sha256sum --check --quiet --strict SHA256SUMS
    WORKING_DIRECTORY "${SOURCE}" OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    string(APPEND GIT_DESCRIBE "-dirty")
  endif()
elseif(GIT)
  execute_process(COMMAND "${GIT}" -C "${SOURCE}" describe --always --dirty --tags
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(GIT_DESCRIBE "${described}")
  endif()
endif()
configure_file("${INPUT}" "${OUTPUT}" @ONLY)
