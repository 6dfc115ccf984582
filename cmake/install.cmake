# Installing and exporting sheaf::sheaf: static libraries, the public headers, and the compiler plug-in.
# The plug-in is opened by name; every program that links sheaf::sheaf carries its folder as a run path, so an
# installed tree can be moved as a whole. The tool is installed itself, and what a link option says would stay in it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(plugin_dir ${CMAKE_INSTALL_LIBDIR}/sheaf)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sheaf)

target_link_options(sheaf INTERFACE
  $<BUILD_INTERFACE:$<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:NAME>,sheaf_tool>>:LINKER:-rpath,${PROJECT_BINARY_DIR}>>
  $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${plugin_dir}>)

install(TARGETS sheaf sheaf_ir sheaf_passes sheaf_codegen sheaf_runtime sheaf_trace EXPORT sheaf FILE_SET HEADERS)
install(TARGETS sheaf_llvm EXPORT sheaf LIBRARY DESTINATION ${plugin_dir})
install(EXPORT sheaf NAMESPACE sheaf:: FILE sheafTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/sheafConfig.cmake.in sheafConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(sheafConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/sheafConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/sheafConfigVersion.cmake
        DESTINATION ${package_dir})
