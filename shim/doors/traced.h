// SPDX-License-Identifier: MIT
// Doors while a timeline is recorded (HPE_TRACE), or the costs of call stacks (recording.h). Then no thread is `quick`:
// every call of the program comes here by its door's slow path, and the door calls itself once more, or its treatment
// with a call that is timed.
//
// Threads, ownership and errors: door.h.
#pragma once

#include <algorithm>
#include <cstddef>

#include "shim/doors/door.h"
#include "shim/observe/kernel_times.h"

namespace hpe::doors {

// A call of the program, from its construction to its end.
class Recorded {
public:
    Recorded(const char* name, std::size_t bytes) noexcept : name_(name), bytes_(bytes) { ++this_thread.traced; }
    ~Recorded() {
        --this_thread.traced;
        event_.ended(name_);
        if (!trace::on()) return;
        trace::add_until_now({.begin = begin_,
                              .name = name_,
                              .bytes = bytes_,
                              .ticket = event_.ticket(),
                              .number = static_cast<std::uint32_t>(result_),
                              .kind = trace::Kind::Call,
                              .flag = launch_without_times_});
    }
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;
    CUresult ended(CUresult result) noexcept { return result_ = result; }
    void launched_without_times(bool without) noexcept { launch_without_times_ = without; }
    std::uint64_t begin() const noexcept { return begin_; }

private:
    call_stacks::Event event_;
    const std::uint64_t begin_ = ticks::now();
    const char* const name_;
    const std::size_t bytes_;
    CUresult result_ = CUDA_SUCCESS;
    bool launch_without_times_ = false;
};

// `again` is the door itself, which knows by `reentered` that it is recorded already. `waits`: the call waits for
// device work.
template <bool waits, class C, class Again>
[[gnu::noinline, gnu::cold]] CUresult traced(const C& call, std::size_t bytes, const Again& again) {
    CUresult result = CUDA_SUCCESS;
    {
        Recorded recorded(call.name(), bytes);
        this_thread.reentered = true;
        result = recorded.ended(again());
    }
    if (waits && result == CUDA_SUCCESS && trace::on()) kernel_times::collect();
    return result;
}

constexpr CUfunction function_of() { return nullptr; }
template <class First, class... Rest>
constexpr CUfunction function_of(const First& first, const Rest&... rest) {
    if constexpr (std::is_same_v<First, CUfunction>) {
        return first;
    } else {
        return function_of(rest...);
    }
}

// The call behind a launch, with a pair of events around it.
template <class C>
class Timed {
public:
    Timed(const C& call, Recorded& recorded) noexcept : flavour(call.flavour), call_(call), recorded_(recorded) {}

    template <class... A>
    CUresult operator()(A... arguments) const {
        return around(stream_of(arguments...), function_of(arguments...), arguments...);
    }
    CUresult operator()(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) const {
        // A kernel that may overlap the one before it would have to wait for the event.
        const auto overlaps = [](const CUlaunchAttribute& attribute) {
            return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        };
        if (config == nullptr) return call_(config, function, parameters, extra);
        if (std::any_of(config->attrs, config->attrs + config->numAttrs, overlaps)) {
            recorded_.launched_without_times(true);
            return call_(config, function, parameters, extra);
        }
        return around(config->hStream, function, config, function, parameters, extra);
    }

    const Flavour flavour;

private:
    template <class... A>
    CUresult around(CUstream stream, CUfunction function, A... arguments) const {
        kernel_times::Launch launch(stream, flavour, function, recorded_.begin());
        recorded_.launched_without_times(!launch.has_times());
        const CUresult result = call_(arguments...);
        launch.launched(result);
        return result;
    }
    const C& call_;
    Recorded& recorded_;
};

// `treatment` is given the call to make.
template <class C, class Treatment>
[[gnu::noinline, gnu::hot]] CUresult launched(const C& call, std::size_t bytes, const Treatment& treatment) {
    Recorded recorded(call.name(), bytes);
    if (!trace::on()) return recorded.ended(treatment(call));
    return recorded.ended(treatment(Timed<C>(call, recorded)));
}

template <class Result, class... Parameters>
Result Call<Result (*)(Parameters...)>::counted(Parameters... arguments) const {
    door_calls[index_].fetch_add(1, std::memory_order_relaxed);
    if (!is_traced()) return straight(arguments...);
    Recorded recorded(name(), 0);
    return recorded.ended(straight(arguments...));
}

}  // namespace hpe::doors
