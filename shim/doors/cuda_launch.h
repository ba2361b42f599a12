// SPDX-License-Identifier: MIT
// Doors of kernel launches, host functions and graphs.
//
// A launch releases every object (thesis section 5.2.3): a kernel reaches memory that is none of its arguments. Graphs
// are settled when launched, not when built.
//
// Threads, ownership and errors: door.h.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "shim/coherence/callbacks.h"
#include "shim/doors/cuda_copy_rows.h"
#include "shim/driver/loaded_kernels.h"

namespace hpe::doors {

// Whether arguments of a launch may lie in an object; `count`: of the kernel's parameters. `extra` may be nullptr.
inline bool may_lie_in_objects(unsigned count, void** parameters, void** extra) {
    const auto held = [](const void* p) { return coherence().may_hold(reinterpret_cast<std::uintptr_t>(p)); };
    if (count == loaded_kernels::kUnknown || extra != nullptr || held(parameters)) return true;
    return parameters != nullptr && std::any_of(parameters, parameters + count, held);
}
// Cooperative launches have none.
constexpr void** extra_of(void** extra = nullptr) { return extra; }
template <class... Last>
HPE_HOT bool may_lie_in_objects(unsigned count, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                CUstream, void** parameters, Last... extra) {
    return may_lie_in_objects(count, parameters, extra_of(extra...));
}

// Copies the arguments of a launch that lie in objects: the driver reads them inside the gate, where a fault cannot
// wait for device work.
class Arguments {
public:
    Arguments(CUfunction function, void**& parameters, void**& extra);

private:
    std::vector<void*> pointers_;
    std::vector<std::vector<std::byte>> values_;
};

// Waits until the device is idle, a second at most.
void wait_a_while_for_idle();

// A kernel that is loaded at its first launch (CUDA's lazy loading) puts an operation into the device that waits for
// the work of all streams and holds up all later work. If a host callback is pending that accesses an object, the fetch
// for it would be held up, too, for ever (seen on an H200). So a first launch waits until the device is idle, though
// not for ever, since the callback may be waiting for this very launch. Other launches do not wait.
inline void wait_before_lazy_load(CUfunction kernel) {
    if (!coherence().expects_callbacks()) [[likely]] {
        return;
    }
    auto state = CU_FUNCTION_LOADING_STATE_LOADED;
    {
        Inside inside;
        if (loaded_kernels::known(kernel)) return;
        if (driver.cuFuncIsLoaded(&state, kernel) == CUDA_SUCCESS && state == CU_FUNCTION_LOADING_STATE_LOADED) return;
    }
    wait_a_while_for_idle();
}

// `count` of its parameters, as it was before.
inline CUresult after_launch(CUfunction kernel, unsigned count, CUresult result) {
    if (result == CUDA_SUCCESS && count == loaded_kernels::kUnknown) loaded_kernels::launched(kernel);
    return result;
}

[[gnu::noinline]] inline CUresult release_before(CUstream stream, Flavour flavour) {
    const auto in = named(stream, flavour);
    return coherence().release(&in);
}

// As enqueue(), but the stream waits for what is sent before it, and not the CPU.
template <class C, class Real>
HPE_HOT CUresult launch_in(CUstream stream, const C& call, Real&& real) {
    return device_work(
        stream, call.flavour, [&] { return release_before(stream, call.flavour); }, real);
}
template <class C, class... A>
HPE_HOT CUresult launch(const C& call, A... arguments) {
    return launch_in(
        stream_of(arguments...), call, [&]() __attribute__((always_inline)) { return call(arguments...); });
}

template <class C>
CUresult launch_graph(const C& call, CUgraphExec graph, CUstream stream) {
    unread::open_all();  // its copies may name any memory
    return launch(call, graph, stream);
}

// The launch when objects have host-valid blocks, or there are host functions, or arguments may lie in objects.
// `count`: of the kernel's parameters.
template <class C, class Function, class... Extra>
[[gnu::noinline]] CUresult launch_prepared(const C& call, unsigned count, Function function, unsigned gx, unsigned gy,
                                           unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                           CUstream stream, void** parameters, Extra... extra) {
    wait_before_lazy_load(function);
    void** more = extra_of(extra...);
    std::optional<Arguments> settled;
    if (may_lie_in_objects(count, parameters, more)) settled.emplace(function, parameters, more);
    ((extra = more), ...);
    return launch(call, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra...);
}

template <class C, class Function, class... Rest>
HPE_HOT CUresult launch_kernel(const C& call, Function function, Rest... rest) {
    const auto& state = coherence();
    const auto count = loaded_kernels::parameters_of(function);
    // A program whose CPU has never accessed an object has no arguments in one: to store them there would be an access.
    if (state.needs_release() || state.expects_callbacks() || count == loaded_kernels::kUnknown ||
        (state.used_by_cpu() && may_lie_in_objects(count, rest...))) [[unlikely]] {
        return after_launch(function, count, launch_prepared(call, count, function, rest...));
    }
    return launch(call, function, rest...);
}

template <class C>
CUresult launch_kernel_ex(const C& call, const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
    const CUstream stream = config != nullptr ? config->hStream : nullptr;
    wait_before_lazy_load(function);
    const auto count = loaded_kernels::parameters_of(function);
    std::optional<Arguments> settled;
    if (may_lie_in_objects(count, parameters, extra)) settled.emplace(function, parameters, extra);
    return after_launch(function, count,
                        launch_in(stream, call, [&] { return call(config, function, parameters, extra); }));
}

template <class C>
CUresult launch_multi_device(const C& call, CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned flags) {
    return device_work(
        count != 0 && launches != nullptr ? launches[0].hStream : nullptr, call.flavour,
        [] { return coherence().release(); },
        [&] {
            const CUresult launched = call(launches, count, flags);
            for (unsigned i = 1; launches != nullptr && i < count; ++i) {
                in_flight.enqueued(launches[i].hStream, call.flavour);
            }
            return launched;
        });
}

// --- host functions: CUDA calls are forbidden in them, so their faults are served by the helper
// ------------------------

// A host function needs no release before it. It enters the gate all the same: a fault that is served may hold locks of
// blocks while it waits for the device, and the device must not wait for a host function that needs those blocks.
template <class C, class Real>
CUresult run_on_host(CUstream stream, const C& call, Real&& real) {
    return device_work(
        stream, call.flavour, [] { return CUDA_SUCCESS; }, real);
}

template <class C>
CUresult host_function(const C& call, CUstream stream, CUhostFn function, void* data) {
    if (function == nullptr) return call(stream, function, data);
    coherence().expect_callbacks();
    // A captured function runs as often as its graph, so its wrapper stays. While any capture is under way this call
    // may be captured.
    callbacks::HostCall* wrapped =
        callbacks::wrap(function, data, in_flight.capturing_anywhere(), in_flight.mark(stream, call.flavour).record);
    const CUresult result =
        run_on_host(stream, call, [&] { return call(stream, callbacks::run_host_function, wrapped); });
    if (result != CUDA_SUCCESS) callbacks::discard(wrapped);
    return result;
}

template <class C>
CUresult stream_callback(const C& call, CUstream stream, CUstreamCallback function, void* data, unsigned flags) {
    if (function == nullptr) return call(stream, function, data, flags);
    coherence().expect_callbacks();
    callbacks::StreamCall* wrapped = callbacks::wrap(function, data, in_flight.mark(stream, call.flavour).record);
    const CUresult result =
        run_on_host(stream, call, [&] { return call(stream, callbacks::run_stream_callback, wrapped, flags); });
    if (result != CUDA_SUCCESS) callbacks::discard(wrapped);
    return result;
}

// --- graph nodes ---------------------------------------------------------------------------------------------------

inline void wrap_host_function(CUhostFn& function, void*& data) {
    if (function == nullptr) return;
    coherence().expect_callbacks();
    data = callbacks::wrap(function, data, true);
    function = callbacks::run_host_function;
}

// The functions that make or change a node are given copies of the program's parameters, with what is to be changed in
// them.
template <class Parameters, class... A>
auto& parameters_among(A&... arguments) {
    return std::get<Parameters*&>(std::tie(arguments...));
}

template <class C, class... A>
CUresult graph_host_node(const C& call, A... arguments) {
    auto& given = parameters_among<const CUDA_HOST_NODE_PARAMS_v1>(arguments...);
    if (given == nullptr) return call(arguments...);
    auto parameters = *given;
    wrap_host_function(parameters.fn, parameters.userData);
    given = &parameters;
    return call(arguments...);
}
// The program reads back the function that it set, not our wrapper.
template <class C>
CUresult graph_get_host_node(const C& call, CUgraphNode node, CUDA_HOST_NODE_PARAMS_v1* out) {
    const CUresult result = call(node, out);
    if (result == CUDA_SUCCESS && out != nullptr) callbacks::unwrap(out->fn, out->userData);
    return result;
}

// Host pointers of copy nodes that are objects become device pointers: the device copy is newest when a graph runs.
template <class C, class... A>
CUresult graph_memcpy_node(const C& call, A... arguments) {
    auto& given = parameters_among<const CUDA_MEMCPY3D_v2>(arguments...);
    if (given == nullptr) return call(arguments...);
    auto descriptor = *given;
    name_objects(descriptor);
    given = &descriptor;
    return call(arguments...);
}

template <class C>
CUresult graph_add_alloc_node(const C& call, CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                              std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    const CUresult result = call(node, graph, before, count, parameters);
    if (result == CUDA_SUCCESS) graph_allocates(parameters->dptr, parameters->bytesize);
    return result;
}

// The generic forms carry parameters of any kind of node.
template <class C, class... A>
CUresult graph_node(const C& call, A... arguments) {
    auto& parameters = parameters_among<CUgraphNodeParams>(arguments...);
    auto* const given = parameters;
    if (given == nullptr) return call(arguments...);
    auto settled = *given;
    if (settled.type == CU_GRAPH_NODE_TYPE_HOST) wrap_host_function(settled.host.fn, settled.host.userData);
    if (settled.type == CU_GRAPH_NODE_TYPE_MEMCPY) name_objects(settled.memcpy.copyParams);
    parameters = &settled;
    const CUresult result = call(arguments...);
    if (result != CUDA_SUCCESS) return result;
    // Out-parameters (the address of a graph's allocation, the graphs inside of a node) go back to the program. Calls
    // that change a node have none, and CUDA refuses them for allocations.
    if (settled.type == CU_GRAPH_NODE_TYPE_GRAPH) given->graph.graph = settled.graph.graph;
    if (settled.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        given->conditional.phGraph_out = settled.conditional.phGraph_out;
    if (settled.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        *given = settled;
        graph_allocates(settled.alloc.dptr, settled.alloc.bytesize);
    }
    return result;
}

}  // namespace hpe::doors
