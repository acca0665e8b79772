# find_package(FineGEMM) for those who build on the installed library.
include(CMakePackageConfigHelpers)
install(TARGETS finegemm finegemm_headers EXPORT FineGEMM LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
        NAMELINK_COMPONENT library)
install(DIRECTORY include/finegemm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
set(directory ${CMAKE_INSTALL_LIBDIR}/cmake/FineGEMM)
install(EXPORT FineGEMM FILE FineGEMMConfig.cmake NAMESPACE FineGEMM:: DESTINATION ${directory} COMPONENT library)
write_basic_package_version_file(FineGEMMConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/FineGEMMConfigVersion.cmake DESTINATION ${directory} COMPONENT library)
