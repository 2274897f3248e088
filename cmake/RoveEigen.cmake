# Eigen, 3.4 or newer. A version in find_package would refuse Eigen 5, whose package says that it is not
# compatible with a request for 3.4; so it is found without one and looked at afterwards.

set(ROVE_EIGEN_INCLUDE_DIR "" CACHE PATH "Eigen's headers, where Eigen comes without a CMake package")
mark_as_advanced(ROVE_EIGEN_INCLUDE_DIR)

function(rove_find_eigen)
  if(TARGET Eigen3::Eigen)
    return() # The project around this one brought its own.
  endif()
  if(ROVE_EIGEN_INCLUDE_DIR)
    add_library(Eigen3::Eigen INTERFACE IMPORTED GLOBAL)
    set_target_properties(Eigen3::Eigen PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${ROVE_EIGEN_INCLUDE_DIR}")
    message(STATUS "rove: Eigen in ${ROVE_EIGEN_INCLUDE_DIR}")
    return()
  endif()
  find_package(Eigen3 CONFIG REQUIRED)
  if(Eigen3_VERSION VERSION_LESS 3.4)
    message(FATAL_ERROR "rove needs Eigen 3.4 or newer; found ${Eigen3_VERSION} in ${Eigen3_DIR}")
  endif()
  # An imported target is seen only from its own directory down; tests and examples are below, but a project
  # around this one is not.
  set_target_properties(Eigen3::Eigen PROPERTIES IMPORTED_GLOBAL TRUE)
  message(STATUS "rove: Eigen ${Eigen3_VERSION}")
endfunction()
