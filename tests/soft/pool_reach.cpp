// SPDX-License-Identifier: MIT
// A pool's memory is copied and set by devices that the pool was opened to, and by no other, whatever side the copy has
// on the host: seen on two H200s.
#include "check.h"

static void may_use(unsigned* p, bool may) {
    const cudaError_t answer = may ? cudaSuccess : cudaErrorInvalidValue;
    unsigned value = 7;
    EXPECT(cudaMemcpy(p, &value, sizeof value, cudaMemcpyHostToDevice) == answer);
    EXPECT(cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost) == answer);
    EXPECT(cudaMemset(p, 0, 4096) == answer);
    cudaStream_t stream;
    cudaGetLastError();
    CUDA(cudaStreamCreate(&stream));
    EXPECT(cudaMemcpyAsync(&value, p, sizeof value, cudaMemcpyDeviceToHost, stream) == answer);
    cudaGetLastError();
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaDeviceSynchronize());
}

int main() {
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        for (int device : {1, 0}) {
            CUDA(cudaSetDevice(device));
            CUDA(cudaFree(nullptr));
        }
        cudaMemPoolProps properties = {};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location = {cudaMemLocationTypeDevice, 1};
        cudaMemPool_t pool;
        CUDA(cudaMemPoolCreate(&pool, &properties));
        unsigned* p = nullptr;
        CUDA(cudaMallocFromPoolAsync(&p, 1 << 20, pool, nullptr));
        CUDA(cudaDeviceSynchronize());
        may_use(p, false);
        CUDA(cudaSetDevice(1));
        may_use(p, true);
        int reaches = 0;
        CUDA(cudaDeviceCanAccessPeer(&reaches, 0, 1));
        if (reaches != 0) {
            cudaMemAccessDesc access = {};
            access.location = {cudaMemLocationTypeDevice, 0};
            access.flags = cudaMemAccessFlagsProtReadWrite;
            CUDA(cudaMemPoolSetAccess(pool, &access, 1));
            CUDA(cudaSetDevice(0));
            may_use(p, true);
        }
        CUDA(cudaSetDevice(1));
        CUDA(cudaFreeAsync(p, nullptr));
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaMemPoolDestroy(pool));
    }
    std::puts("pool reach: ok");
    return 0;
}
