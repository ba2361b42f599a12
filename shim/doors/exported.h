// SPDX-License-Identifier: MIT
// How a door becomes visible to the program; everything else in libhpe.so is hidden.
#pragma once

#define HPE_DOOR __attribute__((visibility("default")))
