// SPDX-License-Identifier: MIT
// `registered FORM`: arrays that the CPU and the GPU use, of one page and of several huge ones, freed and made anew at
// the same addresses. Beside a cache of registered memory (mapping_hooks.c) the end of each is seen before its address
// may come again.
#include "../../doors/programs/program.h"

extern "C" {
__attribute__((weak)) void hooks_begin(void* at);
__attribute__((weak)) int hooks_saw_end();
}

int main(int, char** arguments) {
    plain = std::strcmp(arguments[1], "plain") == 0;
    const bool watched = plain && hooks_begin != nullptr;
    for (unsigned round = 0; round < 4; ++round) {
        for (unsigned count : {1000u, 2000000u}) {
            Data before(5000), data(count);
            // An exported one keeps a chunk that the driver made for both.
            cudaIpcMemHandle_t handle;
            CHECK(cudaIpcGetMemHandle(&handle, before.gpu));
            say("%u wrong\n", data.work(round) + data.check_all());
            if (watched) hooks_begin(data.gpu + count / 2);
            CHECK(cudaFree(data.gpu));
            say("%s\n", watched && hooks_saw_end() == 0 ? "the end of its memory was not seen" : "freed");
            CHECK(cudaFree(before.gpu));
        }
    }
}
