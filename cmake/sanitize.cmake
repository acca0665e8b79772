# FINEGEMM_SANITIZE=address,undefined or thread: all host code under that sanitizer.
set(FINEGEMM_SANITIZE "" CACHE STRING "Sanitizers for the host code, as -fsanitize takes them")
if(FINEGEMM_SANITIZE)
  add_compile_options(-O1 -g1 -fsanitize=${FINEGEMM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${FINEGEMM_SANITIZE})
endif()
