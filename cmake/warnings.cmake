add_library(finegemm_warnings INTERFACE)
target_compile_options(finegemm_warnings INTERFACE
  $<BUILD_INTERFACE:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>)
