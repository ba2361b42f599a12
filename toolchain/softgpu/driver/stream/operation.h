// SPDX-License-Identifier: MIT
// What a stream or a graph node does (CUDA Driver API, "Stream Management", "Graph Management"): one description, done
// now by a stream or later by every launch of a graph.
//
// Each kind is a plain struct in the header of its subject (CopyOp in copy.h, KernelOp in launch.h), beside the
// function that does it: `CUresult run(Context&, const CopyOp&)`, which is called on a worker thread and answers what
// the context breaks with. An operation never changes and is shared by all that may still do it. Threads: any. Errors:
// perform() throws none, the context breaks instead.
#pragma once

#include <memory>
#include <utility>

#include "toolchain/softgpu/driver/base/abi.h"

namespace hpe::soft {

class Context;

class Operation {
public:
    virtual ~Operation() = default;
    virtual CUresult run_in(Context& context) const = 0;
    // Done also in a context that an error has broken?
    virtual bool survives_errors() const = 0;

protected:
    Operation() = default;
};
using OperationRef = std::shared_ptr<const Operation>;

template <class Op>
class OperationOf final : public Operation {
public:
    explicit OperationOf(Op what) : op(std::move(what)) {}
    CUresult run_in(Context& context) const override { return run(context, op); }
    bool survives_errors() const override {
        return requires { Op::survives_errors; };
    }

    const Op op;
};

template <class Op>
OperationRef make_operation(Op op) {
    return std::make_shared<const OperationOf<Op>>(std::move(op));
}
template <class Op>
bool holds(const Operation& operation) {
    return dynamic_cast<const OperationOf<Op>*>(&operation) != nullptr;
}
// Throws std::bad_cast for an operation of another kind.
template <class Op>
const Op& get(const Operation& operation) {
    return dynamic_cast<const OperationOf<Op>&>(operation).op;
}

// Does it, on the calling thread; breaks the context when it fails.
void perform(Context& context, const Operation& operation);

}  // namespace hpe::soft
