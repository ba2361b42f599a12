// SPDX-License-Identifier: MIT
// Memory that is handed to another process as a file descriptor: physical memory of the virtual memory functions, and a
// pool with its allocations. Both processes see each other's writes. What cannot be exported or imported is refused.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "driver.h"

constexpr std::size_t size = 4 << 20;
constexpr int count = size / sizeof(int), small = 1000;

__global__ void fill(int* p, int n, int factor) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = i * factor;
}
__global__ void add(int* p, int n, int what) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] += what;
}

struct Driver {
    DRIVER_FUNCTION(cuMemCreate, 10020)
    DRIVER_FUNCTION(cuMemRelease, 10020)
    DRIVER_FUNCTION(cuMemAddressReserve, 10020)
    DRIVER_FUNCTION(cuMemAddressFree, 10020)
    DRIVER_FUNCTION(cuMemMap, 10020)
    DRIVER_FUNCTION(cuMemUnmap, 10020)
    DRIVER_FUNCTION(cuMemSetAccess, 10020)
    DRIVER_FUNCTION(cuMemExportToShareableHandle, 10020)
    DRIVER_FUNCTION(cuMemImportFromShareableHandle, 10020)
    DRIVER_FUNCTION(cuMemGetAllocationPropertiesFromHandle, 10020)
    DRIVER_FUNCTION(cuMemAllocFromPoolAsync, 11020)
    DRIVER_FUNCTION(cuMemcpyHtoD, 3020)
    DRIVER_FUNCTION(cuMemcpyDtoH, 3020)
    DRIVER_FUNCTION(cuMemsetD8, 3020)
};

static void send_files(int socket, const std::vector<int>& files, const void* data, std::size_t bytes) {
    char control[CMSG_SPACE(4 * sizeof(int))] = {};
    iovec part = {const_cast<void*>(data), bytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
    EXPECT(sendmsg(socket, &message, 0) == static_cast<ssize_t>(bytes));
}
static std::vector<int> receive_files(int socket, std::size_t number, void* data, std::size_t bytes) {
    char control[CMSG_SPACE(4 * sizeof(int))] = {};
    iovec part = {data, bytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    EXPECT(recvmsg(socket, &message, 0) == static_cast<ssize_t>(bytes));
    std::vector<int> files(number);
    std::memcpy(files.data(), CMSG_DATA(CMSG_FIRSTHDR(&message)), number * sizeof(int));
    return files;
}
static void signal(int socket) { EXPECT(write(socket, "x", 1) == 1); }
static void wait(int socket) {
    char c;
    EXPECT(read(socket, &c, 1) == 1);
}

static int* mapped(const Driver& d, CUmemGenericAllocationHandle handle) {
    CUdeviceptr address;
    DRIVER(d.cuMemAddressReserve(&address, size, 0, 0, 0));
    DRIVER(d.cuMemMap(address, size, 0, handle, 0));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER(d.cuMemSetAccess(address, size, &access, 1));
    return reinterpret_cast<int*>(address);
}

static void check(const int* p, int n, int factor, int added) {
    std::vector<int> got(n);
    CUDA(cudaMemcpy(got.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) EXPECT(got[i] == i * factor + added);
}

constexpr auto file_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
static void* as_handle(int file) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(file)); }

static int importer(int socket) {
    CUDA(cudaFree(nullptr));
    const Driver d;
    cudaMemPoolPtrExportData pointers[2];
    const auto files = receive_files(socket, 2, pointers, sizeof pointers);
    CUmemGenericAllocationHandle handle;
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, d.cuMemImportFromShareableHandle(&handle, as_handle(files[1]), file_type));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemImportFromShareableHandle(&handle, as_handle(0), file_type));
    ANSWERS(CUDA_ERROR_UNKNOWN, d.cuMemImportFromShareableHandle(&handle, as_handle(-1), file_type));
    ANSWERS(CUDA_ERROR_INVALID_VALUE,
            d.cuMemImportFromShareableHandle(&handle, as_handle(files[0]), CU_MEM_HANDLE_TYPE_NONE));
    DRIVER(d.cuMemImportFromShareableHandle(&handle, as_handle(files[0]), file_type));
    cudaMemPool_t pool;
    EXPECT(cudaMemPoolImportFromShareableHandle(&pool, as_handle(files[0]), cudaMemHandleTypePosixFileDescriptor, 0) ==
           cudaErrorNotSupported);
    cudaGetLastError();
    CUDA(cudaMemPoolImportFromShareableHandle(&pool, as_handle(files[1]), cudaMemHandleTypePosixFileDescriptor, 0));
    for (const int file : files) close(file);
    CUmemAllocationProp properties;
    DRIVER(d.cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    EXPECT(properties.type == CU_MEM_ALLOCATION_TYPE_PINNED);
    EXPECT(properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);  // it is passed on by who made it
    int file;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemExportToShareableHandle(&file, handle, file_type, 0));
    std::uint64_t value = 1 << 20;
    FAILS(cudaErrorInvalidValue, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value));
    FAILS(cudaErrorInvalidValue, cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value));
    FAILS(cudaErrorInvalidValue, cudaMemPoolTrimTo(pool, 0));
    EXPECT(value == 1 << 20);
    int* p = mapped(d, handle);
    DRIVER(d.cuMemRelease(handle));
    check(p, count, 3, 0);
    int *large, *little;
    CUDA(cudaMemPoolImportPointer(reinterpret_cast<void**>(&large), pool, &pointers[0]));
    CUDA(cudaMemPoolImportPointer(reinterpret_cast<void**>(&little), pool, &pointers[1]));
    check(large, count, 5, 0);
    check(little, small, 7, 0);
    CUdeviceptr none;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemAllocFromPoolAsync(&none, 100, pool, nullptr));
    cudaMemPoolPtrExportData rubbish = {};
    void* nothing;
    EXPECT(cudaMemPoolImportPointer(&nothing, pool, &rubbish) == cudaErrorInvalidValue);
    EXPECT(cudaMemPoolExportPointer(&rubbish, large) == cudaErrorInvalidValue);
    EXPECT(cudaIpcCloseMemHandle(large) == cudaErrorInvalidValue);
    cudaGetLastError();
    add<<<8, 64>>>(p, count, 1);
    add<<<8, 64>>>(large, count, 2);
    add<<<8, 64>>>(little, small, 3);
    CUDA(cudaDeviceSynchronize());
    signal(socket);
    wait(socket);
    check(p, count, 3, 11);  // the other process has written, and let go of the memory
    CUDA(cudaFreeAsync(large, nullptr));
    CUDA(cudaFree(little));
    EXPECT(cudaFree(little) == cudaErrorInvalidValue);
    DRIVER(d.cuMemUnmap(reinterpret_cast<CUdeviceptr>(p), size));
    DRIVER(d.cuMemAddressFree(reinterpret_cast<CUdeviceptr>(p), size));
    CUDA(cudaMemPoolDestroy(pool));
    signal(socket);
    return 0;
}

static void refusals(const Driver& d) {
    CUmemAllocationProp plain = {};
    plain.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    plain.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemGenericAllocationHandle handle;
    DRIVER(d.cuMemCreate(&handle, size, &plain, 0));
    int file;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemExportToShareableHandle(&file, handle, file_type, 0));
    DRIVER(d.cuMemRelease(handle));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemExportToShareableHandle(&file, handle, file_type, 0));
    cudaMemPool_t pool;
    CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    EXPECT(cudaMemPoolExportToShareableHandle(&file, pool, cudaMemHandleTypePosixFileDescriptor, 0) ==
           cudaErrorInvalidValue);
    void* p;
    CUDA(cudaMallocAsync(&p, 100, nullptr));
    cudaMemPoolPtrExportData data;
    EXPECT(cudaMemPoolExportPointer(&data, p) == cudaErrorInvalidValue);
    CUDA(cudaFreeAsync(p, nullptr));
    cudaGetLastError();
}

// Addresses, and memory in some of them.
static void mappings(const Driver& d) {
    CUmemAllocationProp plain = {};
    plain.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    plain.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemGenericAllocationHandle handle;
    DRIVER(d.cuMemCreate(&handle, size, &plain, 0));
    CUdeviceptr p;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemAddressReserve(&p, 4096, 0, 0, 0));
    DRIVER(d.cuMemAddressReserve(&p, 2 * size, 0, 0, 0));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemMap(p + 4096, size, 0, handle, 0));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, d.cuMemMap(p, 4096, 0, handle, 0));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, d.cuMemMap(p, 2 * size, 0, handle, 0));
    ANSWERS(CUDA_ERROR_NOT_SUPPORTED, d.cuMemMap(p, size / 2, size / 2, handle, 0));
    DRIVER(d.cuMemUnmap(p, size));  // nothing is there
    DRIVER(d.cuMemMap(p, size, 0, handle, 0));
    char c = 5;
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemcpyHtoD(p, &c, 1));  // no device may
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemsetD8(p, 0, 4));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER(d.cuMemSetAccess(p, size, &access, 1));
    DRIVER(d.cuMemsetD8(p, 3, 4));
    CUDA(cudaDeviceSynchronize());
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    DRIVER(d.cuMemSetAccess(p, size, &access, 1));
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemcpyHtoD(p, &c, 1));
    DRIVER(d.cuMemcpyDtoH(&c, p, 1));
    EXPECT(c == 3);
    ANSWERS(CUDA_ERROR_INVALID_VALUE, d.cuMemUnmap(p, size / 2));
    DRIVER(d.cuMemUnmap(p, size));
    DRIVER(d.cuMemUnmap(p, size));
    DRIVER(d.cuMemAddressFree(p, 2 * size));
    DRIVER(d.cuMemRelease(handle));
}

int main() {
    int sockets[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    const pid_t child = fork();  // before either has used CUDA
    close(sockets[child == 0 ? 0 : 1]);
    if (child == 0) return importer(sockets[1]);
    int value = 0;
    CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
    EXPECT(value & cudaMemHandleTypePosixFileDescriptor);
    const Driver d;
    refusals(d);
    mappings(d);
    std::size_t before, after, total;
    CUDA(cudaMemGetInfo(&before, &total));
    CUmemAllocationProp shared = {};
    shared.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    shared.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    shared.requestedHandleTypes = file_type;
    CUmemGenericAllocationHandle handle;
    DRIVER(d.cuMemCreate(&handle, size, &shared, 0));
    CUDA(cudaMemGetInfo(&after, &total));
    EXPECT(before - after == size);
    int* p = mapped(d, handle);
    std::vector<int> files(2);
    DRIVER(d.cuMemExportToShareableHandle(&files[0], handle, file_type, 0));
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    cudaMemPool_t pool;
    CUDA(cudaMemPoolCreate(&pool, &properties));
    CUDA(cudaMemPoolExportToShareableHandle(&files[1], pool, cudaMemHandleTypePosixFileDescriptor, 0));
    int *large, *little, *other;
    CUDA(cudaMallocFromPoolAsync(&other, 100, pool, nullptr));
    CUDA(cudaMallocFromPoolAsync(&large, size, pool, nullptr));
    CUDA(cudaMallocFromPoolAsync(&little, small * sizeof(int), pool, nullptr));
    cudaMemPoolPtrExportData pointers[2];
    CUDA(cudaMemPoolExportPointer(&pointers[0], large));
    CUDA(cudaMemPoolExportPointer(&pointers[1], little));
    fill<<<8, 64>>>(p, count, 3);
    fill<<<8, 64>>>(large, count, 5);
    fill<<<8, 64>>>(little, small, 7);
    CUDA(cudaDeviceSynchronize());
    send_files(sockets[0], files, pointers, sizeof pointers);
    for (const int file : files) close(file);
    wait(sockets[0]);
    check(p, count, 3, 1);
    check(large, count, 5, 2);
    check(little, small, 7, 3);
    add<<<8, 64>>>(p, count, 10);
    CUDA(cudaDeviceSynchronize());
    DRIVER(d.cuMemUnmap(reinterpret_cast<CUdeviceptr>(p), size));
    DRIVER(d.cuMemAddressFree(reinterpret_cast<CUdeviceptr>(p), size));
    DRIVER(d.cuMemRelease(handle));
    signal(sockets[0]);
    wait(sockets[0]);
    for (int* each : {large, little, other}) CUDA(cudaFreeAsync(each, nullptr));
    CUDA(cudaStreamSynchronize(nullptr));
    CUDA(cudaMemPoolDestroy(pool));
    int status = 1;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::printf("share: ok\n");
}
