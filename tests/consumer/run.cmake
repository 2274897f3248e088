# cmake -DROVE_SOURCE=<tree> -DROVE_BUILD=<its build> -DWORK=<scratch> -DKIND=<folder here> -DCXX=<compiler>
#       -DCONSUMER_CMAKE=<cmake> -DEIGEN=<headers or empty> -DGENERATOR=<generator> -P run.cmake
#
# Configures, builds, runs and installs one consumer with CONSUMER_CMAKE, which may be older than the cmake
# that built the tree.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " line "${ARGV}")
    message(FATAL_ERROR "failed: ${line}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
set(arguments "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_BUILD_TYPE=Debug" "-DCMAKE_INSTALL_PREFIX=${WORK}/installed")
if(KIND STREQUAL "find_package")
  # The package is moved after it was installed: nothing in it may depend on where it was.
  run("${CMAKE_COMMAND}" --install "${ROVE_BUILD}" --prefix "${WORK}/first")
  file(RENAME "${WORK}/first" "${WORK}/prefix")
  file(GLOB_RECURSE installed RELATIVE "${WORK}/prefix" "${WORK}/prefix/*")
  list(FILTER installed EXCLUDE REGEX
       "^(include/rove/.*\\.hpp|share/cmake/rove/rove-.*\\.cmake|share/doc/rove/LICENSE)$")
  if(installed)
    message(FATAL_ERROR "installed beside headers, package and licence: ${installed}")
  endif()
  list(APPEND arguments "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
else()
  list(APPEND arguments "-DROVE_SOURCE=${ROVE_SOURCE}")
endif()

run("${CONSUMER_CMAKE}" -G "${GENERATOR}" ${arguments} -S "${CMAKE_CURRENT_LIST_DIR}/${KIND}" -B "${WORK}/build")
run("${CONSUMER_CMAKE}" --build "${WORK}/build")
run("${WORK}/build/app")
if(NOT KIND STREQUAL "find_package")
  run("${CONSUMER_CMAKE}" --install "${WORK}/build")
  if(EXISTS "${WORK}/installed")
    message(FATAL_ERROR "the subproject installed files of its own")
  endif()
endif()
