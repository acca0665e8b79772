# A toolchain for wheels of older systems: code for manylinux_2_28, that is glibc 2.28, by PyPI's ziglang
# (python/requirements-release.txt), with its C++ library linked in.
find_program(FINEGEMM_ZIG_PYTHON python3 REQUIRED)   # which has ziglang
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FINEGEMM_ZIG_PYTHON)

set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
set(zig ${FINEGEMM_ZIG_PYTHON} -m ziglang)
set(target -target x86_64-linux-gnu.2.28)
set(CMAKE_C_COMPILER ${zig} cc ${target})
set(CMAKE_CXX_COMPILER ${zig} c++ ${target})
set(CMAKE_C_FLAGS_INIT "-idirafter /usr/include")   # Debian's headers, behind Zig's own of glibc
set(CMAKE_CXX_FLAGS_INIT "-idirafter /usr/include")
