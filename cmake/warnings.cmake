option(FINEGEMM_WERROR "Warnings are errors: on in the presets, off for builds with compilers that we have not seen")

# GCC 12 warns of overlapping copies inside std::string's operator+ (GCC bug 105651).
add_library(finegemm_warnings INTERFACE)
target_compile_options(finegemm_warnings INTERFACE
  $<BUILD_INTERFACE:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<BOOL:${FINEGEMM_WERROR}>:-Werror>>)
