# What the library is built with, all of it from the distribution's packages; nothing is fetched.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)

# zstd::static. Debian's zstd has no CMake file. The archive, where there is one: the library then needs no libzstd.
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
find_library(ZSTD_LIBRARY NAMES libzstd.a zstd REQUIRED)
add_library(zstd::static UNKNOWN IMPORTED)
set_target_properties(zstd::static PROPERTIES
  IMPORTED_LOCATION ${ZSTD_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${ZSTD_INCLUDE_DIR})

# hwy::hwy. Ubuntu 22.04's Highway has no CMake file.
find_package(hwy QUIET)
if(NOT TARGET hwy::hwy)
  find_path(HWY_INCLUDE_DIR hwy/highway.h REQUIRED)
  find_library(HWY_LIBRARY hwy REQUIRED)
  add_library(hwy::hwy SHARED IMPORTED)
  set_target_properties(hwy::hwy PROPERTIES
    IMPORTED_LOCATION ${HWY_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${HWY_INCLUDE_DIR})
endif()
