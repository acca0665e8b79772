// What the shared library shows of itself. Layer public.
#pragma once

#define FINEGEMM_API __attribute__((visibility("default")))
