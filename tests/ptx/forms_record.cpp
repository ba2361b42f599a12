// SPDX-License-Identifier: MIT
// Runs the instruction forms on a real GPU through the driver API. On stdout: what ran it, and a fingerprint of each
// exact form's results; in CELLS, if given, every result of every form (for HPE_FORMS_BIN of the test exec_forms).
// usage: forms_record FOLDER FORMS.list [CELLS]     (what forms.py wrote)
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/ptx/forms_input.h"

#define CHECK(X)                                                            \
    do {                                                                    \
        if (const CUresult status = X; status != CUDA_SUCCESS) {            \
            std::fprintf(stderr, "%s: %d\n", #X, static_cast<int>(status)); \
            std::exit(1);                                                   \
        }                                                                   \
    } while (false)

int main(int argc, char** argv) {
    if (argc != 3 && argc != 4) return 2;
    CUdevice device = 0;
    CUcontext context = nullptr;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    char name_of_device[256] = "";
    int driver = 0;
    CHECK(cuDeviceGetName(name_of_device, sizeof name_of_device, device));
    CHECK(cuDriverGetVersion(&driver));
    std::printf("# %s, CUDA driver %d.%d: fingerprint, operands, form\n", name_of_device, driver / 1000,
                driver % 1000 / 10);
    CUdeviceptr p[4];
    for (auto& q : p) CHECK(cuMemAlloc(&q, forms::cells * 8));
    std::ifstream list(argv[2]);
    std::ofstream cells;
    if (argc == 4) cells.open(argv[3], std::ios::binary);
    std::string loaded;
    for (std::string line; std::getline(list, line);) {
        std::istringstream words(line);
        std::string name, domain, exact, bytes, text;
        words >> name >> domain >> exact >> bytes;
        std::getline(words >> std::ws, text);
        if (domain != loaded)
            for (unsigned n = 0; n < 3; n++)
                CHECK(cuMemcpyHtoD(p[n], forms::input(domain, n).data(), forms::cells * 8));
        loaded = domain;
        CHECK(cuMemsetD8(p[3], 0, forms::cells * 8));
        std::ifstream in(argv[1] + ("/" + name) + ".ptx");
        const std::string ptx{std::istreambuf_iterator<char>(in), {}};
        CUmodule module = nullptr;
        CHECK(cuModuleLoadData(&module, ptx.c_str()));
        CUfunction f = nullptr;
        CHECK(cuModuleGetFunction(&f, module, name.c_str()));
        void* arguments[] = {&p[0], &p[1], &p[2], &p[3]};
        CHECK(cuLaunchKernel(f, forms::cells / 128, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
        CHECK(cuCtxSynchronize());
        std::vector<std::uint64_t> r(forms::cells);
        CHECK(cuMemcpyDtoH(r.data(), p[3], forms::cells * 8));
        if (exact == "exact")
            std::printf("%016llx %s %s\n", static_cast<unsigned long long>(forms::fingerprint(r.data())),
                        domain.c_str(), text.c_str());
        CHECK(cuModuleUnload(module));
        cells.write(reinterpret_cast<const char*>(r.data()), forms::cells * 8);
    }
    return argc == 4 && !cells.good() ? 1 : 0;
}
