# `docs`: the API reference. A warning of Doxygen's is an error, so that no parameter goes undocumented unseen.
if(NOT EXISTS "${PROJECT_SOURCE_DIR}/docs/Doxyfile.in")
  return()
endif()
find_package(Doxygen QUIET)
if(NOT DOXYGEN_FOUND)
  return()
endif()
configure_file(docs/Doxyfile.in "${PROJECT_BINARY_DIR}/docs/Doxyfile" @ONLY)
add_custom_target(
  docs
  COMMAND Doxygen::doxygen "${PROJECT_BINARY_DIR}/docs/Doxyfile"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "API reference in ${PROJECT_BINARY_DIR}/docs/html"
  VERBATIM)
