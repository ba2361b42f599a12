// SPDX-License-Identifier: MIT
// usage: peer_staging_threads ROUNDS [ONE_IN]
//
// Copies between devices through bounce buffers from many threads at once over the soft driver, in streams of either
// device, so that a sanitizer sees peer streams, trials and requests together; contexts end in between. With ONE_IN, one in
// so many of libhpe's own driver calls fails: what was copied is right all the same, or the copy says that it failed.
#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "shim/copies/reservations.h"
#include "shim/copies/peer_staging.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/process/process.h"
#include "tests/sanitizers/do.h"
#include "tests/sanitizers/failing_driver.h"

namespace {

using Contexts = std::array<CUcontext, 3>;
std::mutex beginning;
std::atomic<std::size_t> copies{0}, wrong{0}, told{0}, by_the_driver{0};

void work(const Contexts& contexts, unsigned thread, unsigned rounds) {
    const std::size_t words = (hpe::peer_staging::kSmallest >> 2) + 1000 * thread, bytes = words * 4;
    const auto from = thread % 3, to = (thread + 1) % 3, issuer = thread < 6 ? from : to;
    CUdeviceptr source = 0, target = 0;
    DO(cuCtxSetCurrent(contexts[to]));
    DO(cuMemAlloc_v2(&target, bytes));
    DO(cuCtxSetCurrent(contexts[from]));
    DO(cuMemAlloc_v2(&source, bytes));
    CUstream stream = nullptr;
    DO(cuCtxSetCurrent(contexts[issuer]));
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::vector<unsigned> got(words);
    for (unsigned round = 0; round < rounds; ++round) {
        // Peer streams are made when the devices have nothing to do, so one thread begins after the other.
        std::unique_lock alone(beginning, std::defer_lock);
        if (round == 0) alone.lock();
        const unsigned value = thread * 1000 + round;
        DO(cuCtxSetCurrent(contexts[from]));
        DO(cuMemsetD32_v2(source, value, words));
        DO(cuCtxSynchronize());
        DO(cuCtxSetCurrent(contexts[issuer]));
        bool driver_took_all = false;
        const auto part = [&](CUdeviceptr t, CUdeviceptr f, std::size_t n) {
            driver_took_all = n == bytes;
            return cuMemcpyPeerAsync(t, contexts[to], f, contexts[from], n, stream);
        };
        const auto ordered =
            round % 4 == 3 ? hpe::peer_staging::Ordered::AmongContexts : hpe::peer_staging::Ordered::InStream;
        const auto result = [&] {
            const failing_driver::Patience patience;
            // As the doors do.
            auto& gate = hpe::coherence().launch_gate();
            const hpe::LaunchInGate in_gate(gate, stream);
            const hpe::Touched touched{{target, bytes}, {source, bytes}};
            if (gate.reserved()) hpe::reservations::give_way(stream, &touched);
            return hpe::peer_staging::copy(
                {target, source, bytes, stream, hpe::Flavour::Legacy, contexts[to], contexts[from]}, ordered, part);
        }();
        hpe::in_flight.enqueued(stream, hpe::Flavour::Legacy);
        ++copies;
        by_the_driver += driver_took_all;
        DO(cuStreamSynchronize(stream));
        hpe::peer_staging::waited();
        if (result != CUDA_SUCCESS) {
            ++told;
            continue;
        }
        DO(cuCtxSetCurrent(contexts[to]));
        DO(cuMemcpyDtoH_v2(got.data(), target, bytes));
        for (const unsigned word : got) wrong += word != value;
    }
    DO(cuCtxSetCurrent(contexts[issuer]));
    hpe::in_flight.destroyed(stream);
    DO(cuStreamDestroy_v2(stream));
    DO(cuMemFree_v2(source));
    DO(cuMemFree_v2(target));
}

}  // namespace

int main(int argc, char** argv) {
    const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 6;
    if (!hpe::process::first_use() || !hpe::adopt_driver(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))) {
        std::fprintf(stderr, "no driver to work on\n");
        return 1;
    }
    const unsigned calls = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 0;
    if (calls != 0) failing_driver::install(calls);
    // How long a copy takes under a sanitizer says nothing: as long as it cannot be told, copies are staged.
    hpe::driver.cuEventElapsedTime = [](float*, CUevent, CUevent) { return CUDA_ERROR_NOT_SUPPORTED; };
    DO(cuInit(0));
    Contexts contexts{};
    for (int d = 0; d < 3; ++d) DO(cuDevicePrimaryCtxRetain(&contexts[static_cast<std::size_t>(d)], d));
    for (int life = 0; life < 3; ++life) {
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < 9; ++t) threads.emplace_back(work, std::cref(contexts), t, rounds);
        for (auto& thread : threads) thread.join();
        // One context ends, in turn, and with it what copies of the others have there.
        auto& ended = contexts[static_cast<std::size_t>(life)];
        DO(cuDevicePrimaryCtxReset_v2(life));
        hpe::in_flight.forget(ended);
        hpe::peer_staging::forget(ended);
        DO(cuDevicePrimaryCtxRetain(&ended, life));
    }
    std::printf("%zu copies, %zu by the driver alone, %zu words wrong; %zu calls failed, %zu were told\n",
                copies.load(), by_the_driver.load(), wrong.load(), failing_driver::failed.load(), told.load());
    return wrong != 0 || by_the_driver * 10 > copies * 9 || (calls != 0) != (failing_driver::failed != 0);
}
