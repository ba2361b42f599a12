// SPDX-License-Identifier: MIT
// Runs the warps of a block in turns. Models independent thread scheduling: the lanes of a warp that go different ways
// are groups, each goes on by itself until groups meet, so that a lane may wait for another of its warp.
// Source: CUDA C++ Programming Guide, "SIMT Architecture"; PTX ISA, "Control Flow Instructions", bar and barrier.
//
// Threads: a block and its warps are run by one at a time. Errors: Warp::stop.
#pragma once

#include "toolchain/softgpu/exec/machine.h"

namespace hpe::soft::exec {

Frame* take_frame(Warp& w, const Code& code);
void give_frame(Warp& w, Frame* frame);
void copy_local(Warp& w, std::uint32_t mask, std::uint32_t from, std::uint32_t to, std::uint32_t bytes);

// Lets groups that wait at warp-wide instructions go on where all the lanes they name are there. False: none could.
bool run_waiting_collectives(Warp& w);

// Makes the block ready to run as number `linear` of the grid. False: out of memory.
bool start_block(Block& block, Worker& worker, LaunchState& launch, std::uint64_t linear);

enum class Turn { Done, Progress, Failed };
Turn run_block(Block& block);

}  // namespace hpe::soft::exec
