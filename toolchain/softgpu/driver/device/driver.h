// SPDX-License-Identifier: MIT
// Everything the driver knows, in one place that cuInit makes and nobody ever destroys (CUDA Driver API,
// "Initialization"): work may be in flight, and calls may come, until the very end of the process. Of what stands above
// this file it knows the names alone.
//
// Threads: any; each member has a lock of its own, `order` stands above them. Errors: exceptions of type Error
// (call.h).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "toolchain/softgpu/driver/base/call.h"
#include "toolchain/softgpu/driver/base/handles.h"
#include "toolchain/softgpu/driver/base/options.h"
#include "toolchain/softgpu/driver/device/addresses.h"
#include "toolchain/softgpu/driver/device/device.h"
#include "toolchain/softgpu/driver/device/engine.h"
#include "toolchain/softgpu/driver/device/texture_table.h"

namespace hpe::soft {

class Stream;
class Event;
class Module;
class KernelFunction;
struct Library;
struct Kernel;
class Graph;
struct GraphNode;
class GraphExec;
struct PhysicalMemory;
struct Array;

struct Driver {
    Options options;
    std::vector<std::unique_ptr<Device>> devices;
    Engine engine;
    Addresses addresses;

    Registry<Context> contexts;  // never removed: a destroyed one is recognised as such
    Registry<Stream> streams;
    Registry<Event> events;
    Registry<Module> modules;
    Registry<KernelFunction> functions;
    Registry<Library> libraries;
    Registry<Kernel> kernels;
    Registry<Graph> graphs;
    Registry<GraphNode> graph_nodes;
    Registry<GraphExec> graph_execs;
    Registry<MemoryPool> pools;
    Registry<PhysicalMemory> physical;
    Registry<Array> arrays;
    Textures textures;

    // Guards the order of work: tails of streams, marks of events, captures. Taken before the engine's own lock.
    std::mutex order;
};

void set_driver(std::unique_ptr<Driver> made);  // by cuInit
// Only after cuInit.
Driver& driver();
inline const Capability& capability() { return *driver().options.capability; }

bool is_device(int ordinal);
// By ordinal; throws CUDA_ERROR_INVALID_DEVICE.
Device& device_at(CUdevice ordinal);

}  // namespace hpe::soft
