# What tests, examples and benchmarks share. Nothing here reaches a user of rove::rove.

add_library(rove_warnings INTERFACE)
add_library(rove::warnings ALIAS rove_warnings)
target_compile_options(rove_warnings INTERFACE -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wpedantic)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC takes the deliberately undefined registers of its own AVX-512 intrinsics for uninitialised variables
  # (GCC bug 105593), through Eigen's functions too. tests/headers keeps the warning on for a call of ours.
  target_compile_options(rove_warnings INTERFACE -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
if(ROVE_WERROR)
  target_compile_options(rove_warnings INTERFACE -Werror)
endif()

add_library(rove_development INTERFACE)
add_library(rove::development ALIAS rove_development)
target_link_libraries(rove_development INTERFACE rove::rove rove::warnings)
if(ROVE_ARCH)
  target_compile_options(rove_development INTERFACE -march=${ROVE_ARCH})
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The instruction set decides what the headers become, so the configure step says which one it is: without a
# -march, x86-64 means SSE2.
function(rove_print_isa)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
  if(ROVE_ARCH)
    list(APPEND flags -march=${ROVE_ARCH})
  endif()
  execute_process(
    COMMAND ${CMAKE_CXX_COMPILER} ${flags} -x c++ -E -dM /dev/null
    OUTPUT_VARIABLE macros
    ERROR_VARIABLE problem
    RESULT_VARIABLE status)
  if(status)
    message(FATAL_ERROR "rove: the compiler refuses the flags '${flags}': ${problem}")
  endif()
  if(macros MATCHES "__AVX512F__")
    set(isa "AVX-512")
  elseif(macros MATCHES "__AVX2__")
    set(isa "AVX2")
  elseif(macros MATCHES "__AVX__")
    set(isa "AVX")
  elseif(macros MATCHES "__SSE4_2__")
    set(isa "SSE4.2")
  elseif(macros MATCHES "__SSE2__")
    set(isa "SSE2 (plain x86-64: right, but slow; configure with -DROVE_ARCH=native for this CPU)")
  elseif(macros MATCHES "__ARM_NEON")
    set(isa "NEON")
  else()
    set(isa "scalar code")
  endif()
  if(macros MATCHES "__FMA__" OR macros MATCHES "__aarch64__")
    string(APPEND isa " with FMA")
  endif()
  message(STATUS "rove ${PROJECT_VERSION}: building for ${isa}")
endfunction()

# `coverage_report`: lines of include/ that the tests have run.
option(ROVE_COVERAGE "Add the coverage_report target (needs gcovr)" OFF)
mark_as_advanced(ROVE_COVERAGE)
if(ROVE_COVERAGE)
  find_program(ROVE_GCOVR gcovr REQUIRED)
  # Branch counts that gcc gets wrong (they may be negative) stop gcovr's parser unless it is told to go on.
  add_custom_target(
    coverage_report
    COMMAND "${ROVE_GCOVR}" --root "${PROJECT_SOURCE_DIR}" --filter "${PROJECT_SOURCE_DIR}/include/" --print-summary
            --gcov-ignore-parse-errors --fail-under-line 95 "${PROJECT_BINARY_DIR}"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    USES_TERMINAL VERBATIM)
endif()
