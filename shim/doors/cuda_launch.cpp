// SPDX-License-Identifier: MIT
// What is done before a launch.
#include "shim/doors/cuda_launch.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace hpe::doors {

void wait_a_while_for_idle() {
    using namespace std::chrono_literals;
    for (const auto end = std::chrono::steady_clock::now() + 1s;
         !in_flight.idle() && std::chrono::steady_clock::now() < end;) {
        std::this_thread::sleep_for(100us);
    }
}

Arguments::Arguments(CUfunction function, void**& parameters, void**& extra) {
    // Everything here is read on this thread, before the gate is entered, so that a fault on the way is served as
    // usual.
    if (extra != nullptr) {
        void* buffer = nullptr;
        std::size_t bytes = 0;
        for (void** item = extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
            if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = item[1];
            if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) std::memcpy(&bytes, item[1], sizeof bytes);
        }
        if (buffer == nullptr || !(is_object(buffer) || is_object(extra))) return;
        const auto* from = static_cast<const std::byte*>(buffer);
        values_.emplace_back(from, from + bytes);
        values_.emplace_back(sizeof bytes);
        std::memcpy(values_[1].data(), &bytes, sizeof bytes);
        pointers_ = {CU_LAUNCH_PARAM_BUFFER_POINTER, values_[0].data(), CU_LAUNCH_PARAM_BUFFER_SIZE, values_[1].data(),
                     CU_LAUNCH_PARAM_END};
        extra = pointers_.data();
        return;
    }
    if (parameters == nullptr) return;
    std::size_t bytes = 0;
    bool moved = is_object(parameters);
    for (std::size_t i = 0; loaded_kernels::parameter(function, i, bytes); ++i) {
        pointers_.push_back(parameters[i]);
        values_.emplace_back();
        if (!is_object(parameters[i])) continue;
        const auto* from = static_cast<const std::byte*>(parameters[i]);
        values_.back().assign(from, from + bytes);
        pointers_.back() = values_.back().data();
        moved = true;
    }
    if (moved && !pointers_.empty()) parameters = pointers_.data();
}

}  // namespace hpe::doors
