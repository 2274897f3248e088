# Headers and a relocatable package: find_package(rove CONFIG) then rove::rove, the name it has in the tree.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(rove_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/rove")

target_include_directories(rove INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
install(TARGETS rove EXPORT rove-targets)
install(
  DIRECTORY include/rove
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING
  PATTERN "*.hpp")
install(
  EXPORT rove-targets
  NAMESPACE rove::
  DESTINATION "${rove_package_dir}")

configure_package_config_file(cmake/rove-config.cmake.in "${PROJECT_BINARY_DIR}/rove-config.cmake"
                              INSTALL_DESTINATION "${rove_package_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/rove-config-version.cmake"
  COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/rove-config.cmake" "${PROJECT_BINARY_DIR}/rove-config-version.cmake"
        DESTINATION "${rove_package_dir}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/rove")
