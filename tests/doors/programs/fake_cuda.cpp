// SPDX-License-Identifier: MIT
// Some other library that has functions of its own under names of the driver's.
extern "C" int cuInit(unsigned flags) { return 12345 + static_cast<int>(flags); }
extern "C" int cuMemAlloc_v2(void*, unsigned long) { return 23456; }
