// SPDX-License-Identifier: MIT
// cudaMemset in one, two and three dimensions, at once and in stream order, over odd ranges of objects whose parts were
// last written by the CPU, by kernels, by other fills, or by nobody.
#include "checked.h"

static void fill_model(unsigned char* model, const cudaPitchedPtr& box, const cudaExtent& extent, int value) {
    for (std::size_t z = 0; z < extent.depth; ++z) {
        for (std::size_t y = 0; y < extent.height; ++y) {
            for (std::size_t x = 0; x < extent.width; ++x) {
                model[(z * box.ysize + y) * box.pitch + x] = static_cast<unsigned char>(value);
            }
        }
    }
}

static void fill(const cudaPitchedPtr& box, const cudaExtent& e, int value, bool async, cudaStream_t stream) {
    if (e.height == 1 && e.depth == 1) {
        if (async) CHECK(cudaMemsetAsync(box.ptr, value, e.width, stream));
        if (!async) CHECK(cudaMemset(box.ptr, value, e.width));
    } else if (e.depth == 1) {
        if (async) CHECK(cudaMemset2DAsync(box.ptr, box.pitch, value, e.width, e.height, stream));
        if (!async) CHECK(cudaMemset2D(box.ptr, box.pitch, value, e.width, e.height));
    } else {
        if (async) CHECK(cudaMemset3DAsync(box, value, e, stream));
        if (!async) CHECK(cudaMemset3D(box, value, e));
    }
}

int main(int argc, char** argv) {
    const unsigned steps = static_cast<unsigned>(size_argument(argc, argv, 300));
    constexpr std::size_t n = 24007;
    Checked objects[] = {Checked(n), Checked(n)};
    // A blocking stream: it is ordered with the null stream, in which the kernels run.
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    Random random(29);
    for (unsigned s = 0; s < steps; ++s) {
        Checked& o = objects[random.below(2)];
        const std::size_t first = random.below(n / 2), count = random.below(n / 4);
        switch (random.below(5)) {
            case 0: o.cpu_write(first, count, s); break;
            case 1: o.gpu_write(first, count, s); break;
            case 2: o.cpu_read(first, count); break;
            default: {
                const unsigned dimensions = random.below(3);
                cudaExtent e = make_cudaExtent(1 + random.below(dimensions == 0 ? 9000 : 70), 1, 1);
                if (dimensions >= 1) e.height = 2 + random.below(24);
                if (dimensions == 2) e.depth = 2 + random.below(2);
                const std::size_t pitch = e.width + random.below(50), rows = e.height + random.below(3);
                const cudaPitchedPtr box = make_cudaPitchedPtr(o.gpu(first), pitch, pitch, rows);
                const int value = static_cast<int>(random.below(256));
                fill(box, e, value, random.below(2), stream);
                fill_model(o.model.data() + first, box, e, value);
            }
        }
    }

    Checksum checksum;
    std::size_t wrong = 0;
    for (Checked& o : objects) wrong += o.finish(checksum);
    std::printf("memsets steps=%u wrong=%zu\n", steps, wrong);
    checksum.print();
    CHECK(cudaStreamDestroy(stream));
    return wrong != 0;
}
