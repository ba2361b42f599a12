// SPDX-License-Identifier: MIT
// Picks the handlers for this processor.
#include "toolchain/softgpu/exec/handlers.h"

namespace hpe::soft::exec {

#define HPE_DECLARE(ISA)                                                                                      \
    namespace ISA {                                                                                           \
    Handler integer_handler(Op, Type);                                                                        \
    Handler floating_handler(Op, Type, bool, bool);                                                           \
    Handler half_handler(Op, Type, bool, bool);                                                               \
    Handler setp_handler(Compare, Type);                                                                      \
    Handler set_handler(Compare, Type, Type);                                                                 \
    Handler convert_handler(Type, Type);                                                                      \
    Handler load_handler(Type, unsigned);                                                                     \
    Handler store_handler(Type, unsigned);                                                                    \
    Handler atomic_handler(Atomic, Type, bool);                                                               \
    static const Handlers table{integer_handler, floating_handler, half_handler,  setp_handler,  set_handler, \
                                convert_handler, load_handler,     store_handler, atomic_handler};            \
    }
HPE_DECLARE(base)
HPE_DECLARE(v3)

static std::atomic<bool> only_baseline{false};
void use_baseline_handlers(bool yes) { only_baseline = yes; }

const Handlers& handlers() {
    static const bool has_v3 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                               __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0;
    return has_v3 && !only_baseline ? v3::table : base::table;
}

}  // namespace hpe::soft::exec
