# find_package(FineGEMM) and pkg-config for those who build on the installed library.
include(CMakePackageConfigHelpers)

# The library as an archive, for programs that want one file. It has no list of what is visible.
add_library(finegemm_static STATIC)
foreach(layer IN LISTS FINEGEMM_LAYERS)
  target_sources(finegemm_static PRIVATE $<TARGET_OBJECTS:${layer}>)
endforeach()
get_target_property(fmt_type finegemm_fmt TYPE)
if(fmt_type STREQUAL STATIC_LIBRARY)
  target_sources(finegemm_static PRIVATE $<TARGET_OBJECTS:finegemm_fmt>)
endif()
target_link_libraries(finegemm_static INTERFACE finegemm_headers zstd pthread ${CMAKE_DL_LIBS})
set_target_properties(finegemm_static PROPERTIES OUTPUT_NAME finegemm LINKER_LANGUAGE CXX)

install(TARGETS finegemm finegemm_static finegemm_headers EXPORT FineGEMM
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT library
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY include/finegemm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
set(directory ${CMAKE_INSTALL_LIBDIR}/cmake/FineGEMM)
install(EXPORT FineGEMM FILE FineGEMMConfig.cmake NAMESPACE FineGEMM:: DESTINATION ${directory} COMPONENT library)
write_basic_package_version_file(FineGEMMConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/FineGEMMConfigVersion.cmake DESTINATION ${directory} COMPONENT library)

file(RELATIVE_PATH to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/finegemm.pc.in finegemm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/finegemm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
