// Visibility of the shared library's symbols. Layer public.
#pragma once

#define FINEGEMM_API __attribute__((visibility("default")))
