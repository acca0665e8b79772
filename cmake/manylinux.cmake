# A toolchain for wheels of older systems: code for manylinux_2_28, that is glibc 2.28, by PyPI's ziglang
# (python/requirements-release.txt), with its C++ library linked in.
find_program(FINEGEMM_ZIG_PYTHON python3 REQUIRED)   # which has ziglang
set(FINEGEMM_TARGET x86_64 CACHE STRING "The processor: x86_64 or aarch64")
set(FINEGEMM_ROOT "" CACHE PATH "Where its packages are unpacked, if it is not this machine's (tools/foreign.py)")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FINEGEMM_ZIG_PYTHON FINEGEMM_TARGET FINEGEMM_ROOT)

set(CMAKE_LIBRARY_ARCHITECTURE ${FINEGEMM_TARGET}-linux-gnu)
if(FINEGEMM_ROOT)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR ${FINEGEMM_TARGET})
  set(CMAKE_CROSSCOMPILING_EMULATOR   # for the tool that checks the packs
      qemu-${FINEGEMM_TARGET}-static -L ${FINEGEMM_ROOT})
  set(CMAKE_FIND_ROOT_PATH ${FINEGEMM_ROOT})
  set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
  foreach(what IN ITEMS INCLUDE LIBRARY PACKAGE)
    set(CMAKE_FIND_ROOT_PATH_MODE_${what} ONLY)
  endforeach()
endif()

set(zig ${FINEGEMM_ZIG_PYTHON} -m ziglang)
set(target -target ${FINEGEMM_TARGET}-linux-gnu.2.28)
set(CMAKE_C_COMPILER ${zig} cc ${target})
set(CMAKE_CXX_COMPILER ${zig} c++ ${target})
set(CMAKE_C_FLAGS_INIT "-idirafter ${FINEGEMM_ROOT}/usr/include")   # the packages', behind Zig's own of glibc
set(CMAKE_CXX_FLAGS_INIT "-idirafter ${FINEGEMM_ROOT}/usr/include")
