/* SPDX-License-Identifier: MIT
 * The library that UCX's CUDA module is linked with, for a machine without a GPU: nothing can be asked. */
const char* nvmlErrorString(int result) { return result == 0 ? "success" : "there is no such library here"; }
