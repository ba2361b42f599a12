// SPDX-License-Identifier: MIT
// A host function uses an object, and while it goes on other threads use the device and other bytes of the same block.
#include <csignal>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "swept.h"

namespace {

__global__ void copy_word(Word* to, const Word* from) { *to = *from; }
__global__ void set_after(const volatile Word* flag, Word* to, Word value) {
    while (*flag == 0) {
    }
    *to = value;
}

cudaStream_t new_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}
void wait_for(const std::atomic<int>& step, int least) {
    while (step < least) std::this_thread::yield();
}
void soon(std::atomic<int>& step, int next) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    step = next;
}

// A host function of a stream of its own, which goes from step to step with the thread that made it.
struct Steps {
    cudaStream_t stream = new_stream();
    std::atomic<int> step{0};
    std::function<void(Steps&)> work;

    explicit Steps(std::function<void(Steps&)> what) : work(std::move(what)) {
        CHECK(cudaLaunchHostFunc(
            stream,
            [](void* argument) {
                auto* steps = static_cast<Steps*>(argument);
                steps->work(*steps);
            },
            this));
    }
    ~Steps() {
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamDestroy(stream));
    }
    Steps(const Steps&) = delete;
    Steps& operator=(const Steps&) = delete;
};

// Two objects that the device has, a stream, memory that is pinned; and every kernel was launched before, since the
// first launch may wait for all that goes on.
struct Setting {
    Swept object{3000}, other{100};
    cudaStream_t stream = new_stream();
    Word* pinned = nullptr;

    Setting() {
        CHECK(cudaMallocHost(&pinned, 16 * sizeof(Word)));
        pinned[0] = pinned[1] = 1;
        set_after<<<1, 1>>>(pinned, other.data, 5);
        copy_word<<<1, 1>>>(other.data + 1, other.data);
        other.model[0] = other.model[1] = 5;
        object.kernel(1);
        CHECK(cudaDeviceSynchronize());
        pinned[0] = 0;
    }
    ~Setting() {
        object.read(0, object.size());
        other.read(0, other.size());
        CHECK(cudaFreeHost(pinned));
        CHECK(cudaStreamDestroy(stream));
    }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;
};

// The program's own handler of SIGSEGV has a stack of its own: accesses to objects trap there as well, and wait for the
// host function, which accesses one too.
void on_alternate_stack() {
    static unsigned char memory[64 << 10];
    stack_t stack = {};
    stack.ss_sp = memory;
    stack.ss_size = sizeof memory;
    CHECK(sigaltstack(&stack, nullptr) == 0 ? cudaSuccess : cudaErrorUnknown);
    struct sigaction action = {};
    action.sa_handler = [](int) { std::_Exit(3); };
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    Setting s;
    s.other.kernel(2);
    CHECK(cudaDeviceSynchronize());
    Steps callback([&](Steps& with) {
        wait_for(with.step, 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        s.object.read(0, 100);
        s.object.write(7, 70);
    });
    callback.step = 1;
    s.other.read(3);
}

// What this thread writes to the block goes to the device with its own next launch or copy.
void writes_beside() {
    for (int way = 0; way < 3; ++way) {
        Setting s;
        Steps callback([&](Steps& with) {
            s.object.write(0, 1000);
            with.step = 1;
            wait_for(with.step, 2);
            s.object.write(2, 1002);
            with.step = 3;
            wait_for(with.step, 4);
        });
        wait_for(callback.step, 1);
        s.object.write(1, 2000);
        const Word* from = s.object.data + 1;
        if (way == 0) {
            copy_word<<<1, 1, 0, s.stream>>>(s.other.data, s.object.data + 1);
            s.other.model[0] = 2000;
            from = s.other.data;
        }
        if (way == 1) {  // beside it
            CHECK(cudaMemsetAsync(s.object.data + 3, 1, sizeof(Word), s.stream));
            s.object.model[3] = 0x01010101;
        }
        CHECK(cudaMemcpyAsync(s.pinned, from, sizeof(Word), cudaMemcpyDefault, s.stream));
        CHECK(cudaStreamSynchronize(s.stream));
        wrong += s.pinned[0] != 2000;
        // Once more, behind what the host function writes now.
        callback.step = 2;
        wait_for(callback.step, 3);
        std::thread end([&] { soon(callback.step, 4); });
        s.object.write(5, 3000);
        CHECK(cudaMemcpyAsync(s.pinned, s.object.data + 5, sizeof(Word), cudaMemcpyDefault, s.stream));
        CHECK(cudaStreamSynchronize(s.stream));
        wrong += s.pinned[0] != 3000;
        end.join();
    }
}

// What the device writes to the block while the host function uses it is seen by whoever has waited for it.
void device_writes_beside() {
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    for (int way = 0; way < 5; ++way) {
        Setting s;
        Steps callback([&](Steps& with) {
            s.object.write(0, 1000);
            with.step = 1;
            wait_for(with.step, 2);
            s.object.write(2, 1002);  // the device has work to do there now
            with.step = 3;
            wait_for(with.step, 4);
        });
        wait_for(callback.step, 1);
        set_after<<<1, 1, 0, s.stream>>>(s.pinned, s.object.data + 1, 77);
        CHECK(cudaGetLastError());
        s.object.model[1] = 77;
        CHECK(cudaEventRecord(event, s.stream));
        callback.step = 2;
        wait_for(callback.step, 3);
        *static_cast<volatile Word*>(s.pinned) = 1;
        if (way == 0) CHECK(cudaStreamSynchronize(s.stream));
        if (way == 1) CHECK(cudaEventSynchronize(event));
        while (way == 2 && cudaStreamQuery(s.stream) != cudaSuccess) std::this_thread::yield();
        while (way == 3 && cudaEventQuery(event) != cudaSuccess) std::this_thread::yield();
        if (way == 4) {
            // Of another word of it, and a copy, which the device makes before it returns.
            CHECK(cudaMemsetAsync(s.object.data + 3, 2, sizeof(Word), s.stream));
            s.object.model[3] = 0x02020202;
            CHECK(cudaStreamSynchronize(s.stream));
        }
        std::thread end([&] { soon(callback.step, 4); });
        s.object.read(1);
        s.object.read(3);
        end.join();
    }
    CHECK(cudaEventDestroy(event));
}

// A launch takes what the host function wrote, and the stream of the host function goes on before that has arrived.
void goes_on_behind() {
    for (Word round = 0; round < 4; ++round) {
        Setting s;
        Swept large(kWords / 6);
        large.kernel(1);
        CHECK(cudaDeviceSynchronize());
        const auto last = large.size() - 1;
        Steps callback([&](Steps& with) {
            large.write(0, large.size(), round);
            with.step = 1;
            wait_for(with.step, 2);
        });
        copy_word<<<1, 1, 0, callback.stream>>>(s.other.data + 9, large.data + last);
        wait_for(callback.step, 1);
        copy_word<<<1, 1, 0, s.stream>>>(s.other.data + 8, large.data + last);
        callback.step = 2;
        s.other.model[8] = s.other.model[9] = large.model[last];
    }
}

// A host function comes behind what its stream wrote to a block that another one has had since before.
void begins_behind() {
    for (int way = 0; way < 2; ++way) {
        Setting s;
        set_after<<<1, 1, 0, s.stream>>>(s.pinned, s.object.data + 1, 5);
        CHECK(cudaGetLastError());
        CHECK(cudaLaunchHostFunc(
            s.stream,
            [](void* argument) {
                auto* data = static_cast<volatile Word*>(argument);
                wrong += data[1] != 5;
                data[1] = 0;
            },
            s.object.data));
        copy_word<<<1, 1, 0, s.stream>>>(s.other.data, s.object.data + 1);
        s.object.model[1] = s.other.model[0] = 0;
        // NVIDIA's driver has one thread for all host functions: the second may come when this one has ended.
        Steps callback([&](Steps& with) {
            if (way == 0) s.object.read(0);
            if (way == 1) s.object.write(0, 1000);
            with.step = 1;
            wait_for(with.step, 2);
        });
        wait_for(callback.step, 1);
        *static_cast<volatile Word*>(s.pinned) = 1;
        soon(callback.step, 2);
        CHECK(cudaStreamSynchronize(s.stream));
    }
}

// What a copy reads is on its way while a host function changes another byte, and changes it back; and the device is at
// work elsewhere.
void changes_and_back() {
    Setting s;
    Swept large(kWords / 2), to(kWords / 2);
    cudaStream_t copies = new_stream();
    const auto all = [&](Word value) {
        for (std::size_t i = 0; i < large.size(); ++i) large.write(i, value);
    };
    for (Word round = 0; round < 6; ++round) {
        all(round % 2);
        copy_word<<<1, 1, 0, s.stream>>>(s.other.data, s.other.data + 1);
        CHECK(cudaDeviceSynchronize());
    }
    all(0);
    set_after<<<1, 1, 0, s.stream>>>(s.pinned, s.object.data, 3);
    CHECK(cudaGetLastError());
    s.object.model[0] = 3;
    const auto last = large.size() - 1, half = large.size() / 2;
    Steps callback([&](Steps& with) {
        all(0x01010101);
        with.step = 1;
        wait_for(with.step, 2);
        large.write(last, 0x02020202);
        std::this_thread::sleep_for(std::chrono::milliseconds(40));
        large.write(last, 0x01010101);
    });
    wait_for(callback.step, 1);
    CHECK(cudaMemcpyAsync(to.data, large.data, half * sizeof(Word), cudaMemcpyDeviceToDevice, copies));
    CHECK(cudaMemcpyAsync(to.data + half, large.data + half, (half - 1000) * sizeof(Word), cudaMemcpyDeviceToDevice,
                          copies));
    callback.step = 2;
    CHECK(cudaStreamSynchronize(callback.stream));
    CHECK(cudaStreamSynchronize(copies));
    *static_cast<volatile Word*>(s.pinned) = 1;
    std::copy_n(large.model.begin(), large.size() - 1000, to.model.begin());
    CHECK(cudaDeviceSynchronize());
    large.read(0, large.size());
    to.read(0, to.size());
    CHECK(cudaStreamDestroy(copies));
}

// Zeros that a host function is the first to write, to memory that held something else.
void zeros_first() {
    cudaStream_t stream = new_stream();
    constexpr std::size_t kBytes = 16384;
    for (int round = 0; round < 50; ++round) {
        void* memory = nullptr;
        CHECK(cudaMalloc(&memory, kBytes));
        CHECK(cudaMemset(memory, 0xab, kBytes));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaFree(memory));
        CHECK(cudaMalloc(&memory, kBytes));
        CHECK(cudaLaunchHostFunc(
            stream, [](void* argument) { std::memset(argument, 0, kBytes); }, memory));
        CHECK(cudaStreamSynchronize(stream));
        std::vector<unsigned char> host(kBytes, 1);
        CHECK(cudaMemcpy(host.data(), memory, kBytes, cudaMemcpyDeviceToHost));
        for (const auto byte : host) wrong += byte != 0;
        CHECK(cudaFree(memory));
    }
    CHECK(cudaStreamDestroy(stream));
}

// All of an array, with nothing else to do for the device: of each block one transfer. Or with work that writes to it
// beside.
void whole_array(bool beside) {
    Setting s;
    Swept array(beside ? kWords / 32 : kWords);
    array.kernel(1);
    CHECK(cudaDeviceSynchronize());
    const auto own = array.size() / 2;
    if (beside) {
        set_after<<<1, 1, 0, s.stream>>>(s.pinned, array.data + own, 55);
        CHECK(cudaGetLastError());
    }
    Steps callback([&](Steps& with) {
        // While the call that brought it here goes on, more work for the device may come.
        wait_for(with.step, 1);
        for (std::size_t i = 0; i < array.size(); ++i) {
            if (!beside || i != own) array.write(i, array.data[i] % 1000);
            if (!beside || i != own + 5) continue;
            *static_cast<volatile Word*>(s.pinned) = 1;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    });
    callback.step = 1;
    CHECK(cudaStreamSynchronize(callback.stream));
    CHECK(cudaStreamSynchronize(s.stream));
    if (beside) array.model[own] = 55;
    array.read(0, array.size());
}
void whole_array_alone() { whole_array(false); }
void whole_array_beside() { whole_array(true); }

// More launches than a stream takes, behind a host function that needs something before it ends, and while what they
// need is on its way.
void full_stream() {
    Setting s;
    Swept large(kWords);
    large.kernel(1);
    CHECK(cudaDeviceSynchronize());
    large.write(0, large.size(), 3);
    Steps callback([&](Steps& with) {
        wait_for(with.step, 1);
        s.object.write(2, 1002);
        s.object.read(3);
    });
    std::thread end([&] { soon(callback.step, 1); });
    for (Word i = 0; i < 3000; ++i) copy_word<<<1, 1, 0, callback.stream>>>(s.other.data + 9, large.data + i % 100);
    CHECK(cudaGetLastError());
    s.other.model[9] = large.model[99];
    end.join();
    CHECK(cudaStreamSynchronize(callback.stream));
    large.read(0, large.size());
}

// Launch after launch while the host function goes on writing what they do not touch.
void launches_meanwhile() {
    Setting s;
    Swept far(kWords);
    far.kernel(1);
    CHECK(cudaDeviceSynchronize());
    std::atomic<bool> done{false};
    Steps callback([&](Steps& with) {
        with.step = 1;
        for (Word i = 0; i < 300; ++i) s.object.write(10 + i, i);
        for (std::size_t i = 0; i < far.size(); i += kMiB / 8) far.write(i, 9);
        done = true;
    });
    wait_for(callback.step, 1);
    for (Word i = 0; !done || i < 10; ++i) {
        copy_word<<<1, 1, 0, s.stream>>>(s.object.data + i % 5, s.other.data + 5);
        s.object.model[i % 5] = s.other.model[5];
        CHECK(cudaGetLastError());
        if (i % 100 == 99) CHECK(cudaStreamSynchronize(s.stream));
    }
    CHECK(cudaStreamSynchronize(callback.stream));
    CHECK(cudaStreamSynchronize(s.stream));
    far.read(0, far.size());
}

// What it writes to memory of two devices may be refused by both: waits then fail until both contexts have ended,
// whichever ends first, and no longer.
void two_devices() {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    const auto use = [&](int device) { CHECK(cudaSetDevice(device % count)); };
    for (const int first : {0, 1}) {
        Word* words[2];
        for (const int device : {0, 1}) {
            use(device);
            CHECK(cudaMalloc(&words[device], sizeof(Word)));
            CHECK(cudaMemset(words[device], 0, sizeof(Word)));
            CHECK(cudaDeviceSynchronize());
        }
        const auto write = [](void* of) { *static_cast<Word**>(of)[0] = *static_cast<Word**>(of)[1] = 1; };
        CHECK(cudaLaunchHostFunc(nullptr, write, words));
        const auto refused = cudaDeviceSynchronize();
        use(first);
        if (cudaDeviceReset() != cudaSuccess) {  // it stays, with its error
            wrong += cudaDeviceSynchronize() != refused;
            CHECK(cudaDeviceReset());
        }
        use(1 - first);
        wrong += cudaDeviceSynchronize() != refused;
        CHECK(cudaDeviceReset());
        CHECK(cudaDeviceSynchronize());
    }
}

constexpr Case cases[] = {
    CASE(on_alternate_stack), CASE(writes_beside),     CASE(device_writes_beside), CASE(goes_on_behind),
    CASE(launches_meanwhile), CASE(begins_behind),     CASE(changes_and_back),     CASE(zeros_first),
    CASE(whole_array_beside), CASE(whole_array_alone), CASE(full_stream),          CASE(two_devices),
};

}  // namespace

int main(int argc, char** argv) { return run(cases, argc, argv); }
