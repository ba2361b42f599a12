// SPDX-License-Identifier: MIT
// What the soft device has not of textures, surfaces and arrays is refused when it is made, or when the kernel is first
// needed, with CUDA's own error and one line that names it; a fetch that fits no texture ends its launch.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "check.h"

__global__ void writes(cudaSurfaceObject_t s) { surf2Dwrite(1.0f, s, 4 * threadIdx.x, 0); }
__global__ void reads(cudaSurfaceObject_t s, float* out) { surf2Dread(out + threadIdx.x, s, 4 * threadIdx.x, 0); }
__global__ void gathers(cudaTextureObject_t t, float4* out) { *out = tex2Dgather<float4>(t, 0.5f, 0.5f, 1); }
__global__ void cube(cudaTextureObject_t t, float* out) { *out = texCubemap<float>(t, 1, 0, 0); }
__global__ void gradient(cudaTextureObject_t t, float* out) {
    *out = tex2DGrad<float>(t, 0.5f, 0.5f, make_float2(1, 0), make_float2(0, 1));
}
__global__ void resident(cudaTextureObject_t t, float* out) {
    bool there;
    *out = tex2D<float>(t, 0.5f, 0.5f, &there);
    out[1] = there;
}
__global__ void flat(cudaTextureObject_t t, float* out) { *out = tex2D<float>(t, 0.5f, 0.5f); }
__global__ void line(cudaTextureObject_t t, float* out) { *out = tex1Dfetch<float>(t, 1); }
__global__ void layer(cudaTextureObject_t t, float* out, int which) { *out = tex1DLayered<float>(t, 0.5f, which); }

// What `work` writes to stderr.
template <class Work>
std::string said_by(Work work) {
    int ends[2];
    EXPECT(pipe(ends) == 0);
    const int terminal = dup(2);
    dup2(ends[1], 2);
    work();
    dup2(terminal, 2);
    close(terminal);
    close(ends[1]);
    char text[4096] = {};
    const ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    return std::string(text, static_cast<std::size_t>(n > 0 ? n : 0));
}

template <class Work>
void refused(const char* what, cudaError_t error, Work work) {
    cudaError_t got = cudaSuccess;
    const std::string said = said_by([&] { got = work(); });
    const bool one_line = !said.empty() && said.find('\n') == said.size() - 1 && said.find("hpe-soft: ") == 0;
    if (got != error || !one_line || said.find(what) == std::string::npos) {
        std::fprintf(stderr, "%s: %s, and said: %s\n", what, cudaGetErrorName(got), said.c_str());
        std::exit(1);
    }
    cudaGetLastError();
}

struct Image {
    cudaArray_t array = nullptr;
    cudaResourceDesc resource{};
    cudaTextureDesc reading{};
    Image(cudaExtent extent, unsigned flags, cudaChannelFormatDesc format = cudaCreateChannelDesc<float>()) {
        CUDA(cudaMalloc3DArray(&array, &format, extent, flags));
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
    }
    ~Image() { CUDA(cudaFreeArray(array)); }
    Image(const Image&) = delete;
    cudaError_t create(const cudaResourceViewDesc* view = nullptr) {
        cudaTextureObject_t t;
        return cudaCreateTextureObject(&t, &resource, &reading, view);
    }
    cudaTextureObject_t texture() {
        cudaTextureObject_t t;
        CUDA(cudaCreateTextureObject(&t, &resource, &reading, nullptr));
        return t;
    }
};

void objects() {
    constexpr auto no = cudaErrorNotSupported;
    Image image({8, 8, 0}, cudaArraySurfaceLoadStore), cubemap({8, 8, 6}, cudaArrayCubemap);
    Image colours({8, 8, 0}, 0, cudaCreateChannelDesc<uchar4>());
    image.reading.filterMode = cudaFilterModeLinear;
    refused("filtering", no, [&] { return image.create(); });
    image.reading.filterMode = cudaFilterModePoint;
    refused("cubemap", no, [&] { return cubemap.create(); });
    colours.reading.sRGB = 1;
    refused("sRGB", no, [&] { return colours.create(); });
    colours.reading.sRGB = 0;
    for (auto& mode : colours.reading.addressMode) mode = cudaAddressModeBorder;
    colours.reading.readMode = cudaReadModeNormalizedFloat;
    colours.reading.borderColor[2] = NAN;
    refused("border", no, [&] { return colours.create(); });
    cudaResourceViewDesc view{};
    view.format = cudaResViewFormatFloat1, view.width = view.height = 8;
    refused("view", no, [&] { return image.create(&view); });
    refused("Surface", no, [&] {
        cudaSurfaceObject_t s;
        return cudaCreateSurfaceObject(&s, &image.resource);
    });
    const auto format = cudaCreateChannelDesc<float>();
    refused("Mipmapped", no, [&] {
        cudaMipmappedArray_t m;
        return cudaMallocMipmappedArray(&m, &format, {8, 8, 0}, 3);
    });
    refused("sparse", no, [&] {
        cudaArray_t a;
        return cudaMalloc3DArray(&a, &format, {8, 8, 0}, cudaArraySparse);
    });
}

template <class Launch>
void refused_kernel(const char* instruction, Launch launch) {
    refused(instruction, cudaErrorNotSupported, [&] {
        launch();
        return cudaGetLastError();
    });
    const std::string again = said_by([&] {
        launch();
        EXPECT(cudaGetLastError() == cudaErrorNotSupported);
    });
    EXPECT(again.empty());  // said once
}

void kernels() {
    Image image({8, 8, 0}, 0);
    const cudaTextureObject_t t = image.texture();
    Buffer<float> out(4);
    refused_kernel("sust.b", [&] { writes<<<1, 1>>>(0); });
    refused_kernel("suld.b", [&] { reads<<<1, 1>>>(0, out.p); });
    refused_kernel("tld4.g.2d", [&] { gathers<<<1, 1>>>(t, reinterpret_cast<float4*>(out.p)); });
    refused_kernel("tex.cube", [&] { cube<<<1, 1>>>(t, out.p); });
    refused_kernel("tex.grad", [&] { gradient<<<1, 1>>>(t, out.p); });
    refused_kernel("|%p", [&] { resident<<<1, 1>>>(t, out.p); });
    // The module's other kernels run.
    flat<<<1, 1>>>(t, out.p);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaDestroyTextureObject(t));
}

// Fetches that end their launch, each in a process of its own.
int launches(int which) {
    Image image({8, 0, 3}, cudaArrayLayered), solid({8, 8, 2}, 0);
    Buffer<float> out(1);
    switch (which) {
        case 0: flat<<<1, 1>>>(12345, out.p); break;
        case 1: layer<<<1, 1>>>(image.texture(), out.p, 3); break;
        case 2: flat<<<1, 1>>>(solid.texture(), out.p); break;
        case 3: line<<<1, 1>>>(0, out.p); break;
    }
    CUDA(cudaGetLastError());
    const cudaError_t e = cudaDeviceSynchronize();
    std::_Exit(e == cudaSuccess ? 0 : static_cast<int>(e) & 127);
}

void faults(const char* self) {
    const cudaError_t wanted[] = {cudaErrorIllegalAddress, cudaErrorNotSupported, cudaErrorNotSupported,
                                  cudaErrorIllegalAddress};
    const char* words[] = {"no texture object", "last layer", "another kind", "no texture object"};
    for (int which = 0; which < 4; which++) {
        int status = 0;
        const std::string said = said_by([&] {
            const pid_t child = fork();
            if (child == 0) {
                const std::string number = std::to_string(which);
                execl(self, self, number.c_str(), nullptr);
                _exit(126);
            }
            waitpid(child, &status, 0);
        });
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == (wanted[which] & 127));
        for (const char* word : {words[which], "kernel ", "thread ", "tex."})
            EXPECT(said.find(word) != std::string::npos);
    }
}

int main(int count, char** arguments) {
    if (count > 1) return launches(std::atoi(arguments[1]));
    faults(arguments[0]);
    objects();
    kernels();
    CUDA(cudaDeviceSynchronize());
    std::printf("refused images: ok\n");
}
