// SPDX-License-Identifier: MIT
// madvise() advice that is younger than some C libraries. Kernels that do not know it answer EINVAL.
#pragma once

#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif
