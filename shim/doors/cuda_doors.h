// SPDX-License-Identifier: MIT
// All treatments of driver functions, for the wrappers that scripts/gen_cuda_doors.py makes.
// Threads, ownership and errors: door.h.
#pragma once

#include "shim/doors/cuda_context.h"
#include "shim/doors/cuda_copy.h"
#include "shim/doors/cuda_copy_rows.h"
#include "shim/doors/cuda_launch.h"
#include "shim/doors/cuda_memory.h"
#include "shim/doors/cuda_modules.h"
#include "shim/doors/cuda_peers.h"
#include "shim/doors/cuda_pools.h"
#include "shim/doors/cuda_virtual.h"
#include "shim/doors/door.h"
#include "shim/doors/traced.h"
