# cmake -DSAYS=<regex> -P expect.cmake -- <compiler> <argument>...
#
# The compiler is to refuse with a message that matches SAYS, or, SAYS empty, to accept without a word.
set(command "")
set(seen FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(seen)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(seen TRUE)
  endif()
endforeach()

execute_process(
  COMMAND ${command}
  RESULT_VARIABLE status
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(SAYS STREQUAL "")
  if(NOT status EQUAL 0 OR NOT output STREQUAL "")
    message(FATAL_ERROR "should compile cleanly; the compiler said:\n${output}")
  endif()
elseif(status EQUAL 0)
  message(FATAL_ERROR "should not compile")
elseif(NOT output MATCHES "${SAYS}")
  message(FATAL_ERROR "should say '${SAYS}'; the compiler said:\n${output}")
endif()
