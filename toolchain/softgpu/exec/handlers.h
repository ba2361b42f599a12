// SPDX-License-Identifier: MIT
// Which handler runs an instruction. The handler files are compiled for several instruction sets; handlers() gives the
// table for the best one that this processor has.
//
// Threads: any; the table is constant. Errors: nullptr where no handler runs such an instruction.
#pragma once

#include "toolchain/ptx/ast.h"
#include "toolchain/softgpu/exec/machine.h"

namespace hpe::soft::exec {

using ptx::Type;

enum class Op : std::uint8_t {
    None,
    Mov,
    Add,
    Sub,
    AddSat,
    SubSat,
    MulLo,
    MulHi,
    MulWide,
    MadLo,
    MadHi,
    MadWide,
    Mul24Lo,
    Mul24Hi,
    Mad24Lo,
    Mad24Hi,
    Sad,
    Div,
    Rem,
    Abs,
    Neg,
    Min,
    Max,
    Popc,
    Clz,
    Bfind,
    BfindShift,
    Brev,
    Bfe,
    Bfi,
    Bmsk,
    BmskWrap,
    Prmt,
    PrmtF4e,
    PrmtB4e,
    PrmtRc8,
    PrmtEcl,
    PrmtEcr,
    PrmtRc16,
    And,
    Or,
    Xor,
    Not,
    Cnot,
    Shl,
    Shr,
    ShfLeft,
    ShfLeftWrap,
    ShfRight,
    ShfRightWrap,
    Lop3,
    Dp4aUU,
    Dp4aUS,
    Dp4aSU,
    Dp4aSS,
    Dp2aUU,
    Dp2aUS,
    Dp2aSU,
    Dp2aSS,
    Selp,
    Slct,
    SlctFloat,
    AddCc,
    AddcCc,
    Addc,
    SubCc,
    SubcCc,
    Subc,
    MadLoCc,
    MadcLo,
    MadcLoCc,
    MadHiCc,
    MadcHi,
    MadcHiCc,
    Mul,
    Fma,
    Rcp,
    Sqrt,
    Rsqrt,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
    DivApprox,
    DivFull,
    MinNan,
    MaxNan,
    Copysign,
    TestFinite,
    TestInfinite,
    TestNumber,
    TestNotNumber,
    TestNormal,
    TestSubnormal,
    FmaRelu,
};

enum class Compare : std::uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan };
enum class Combine : std::uint8_t { None, And, Or, Xor };
enum class Rounding : std::uint8_t { None, Rn, Rz, Rm, Rp, Rni, Rzi, Rmi, Rpi, Rna };
enum class Collective : std::uint8_t {
    ShflUp,
    ShflDown,
    ShflBfly,
    ShflIdx,
    VoteAll,
    VoteAny,
    VoteUni,
    VoteBallot,
    MatchAny32,
    MatchAny64,
    MatchAll32,
    MatchAll64,
    ReduxAdd,
    ReduxMinU,
    ReduxMinS,
    ReduxMaxU,
    ReduxMaxS,
    ReduxAnd,
    ReduxOr,
    ReduxXor,
    Barrier,
    Elect,
};
enum class Mbarrier : std::uint8_t { Init, Invalidate, Arrive, ArriveDrop, Expect, Complete };
enum class Atomic : std::uint8_t { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec };

struct Handlers {
    Handler (*integer)(Op, Type);
    // environment: rounding or flushing other than the default, in Instr::mode
    Handler (*floating)(Op, Type, bool saturate, bool environment);
    Handler (*half)(Op, Type, bool saturate, bool flush);
    Handler (*setp)(Compare, Type);
    Handler (*set)(Compare, Type operand, Type result);
    // Instr::imm is a convert_code, Instr::mode the Rounding
    Handler (*convert)(Type to, Type from);
    Handler (*load)(Type, unsigned register_bytes);
    Handler (*store)(Type, unsigned register_bytes);
    Handler (*atomic)(Atomic, Type, bool result);
};
const Handlers& handlers();
// For tests: translate as if this processor had nothing but the oldest instruction set.
void use_baseline_handlers(bool yes);

// What a conversion needs to know; the registers may be wider than the types, their sizes are in bytes.
struct ConvertCode {
    Type to = Type::None, from = Type::None;
    std::uint8_t to_register = 0, from_register = 0;
    bool saturate = false, flush = false, relu = false;
    std::uint8_t pad = 0;
};
static_assert(sizeof(Type) == 1 && sizeof(ConvertCode) == 8);

// Whether races are looked for; run_watched then stands in front of what touches shared memory.
bool watching();
const Instr* run_watched(Warp&, const Instr*, std::uint32_t);

// Handlers that gain nothing from wider vectors, compiled once.
Handler predicate_handler(Op);  // And, Or, Xor, Not, Mov of predicates
Handler collective_handler(Collective);
const Instr* run_leader(Warp&, const Instr*, std::uint32_t);
const Instr* run_branch(Warp&, const Instr*, std::uint32_t);
const Instr* run_branch_if(Warp&, const Instr*, std::uint32_t);
const Instr* run_branch_table(Warp&, const Instr*, std::uint32_t);
const Instr* run_exit(Warp&, const Instr*, std::uint32_t);
const Instr* run_return(Warp&, const Instr*, std::uint32_t);
const Instr* run_call(Warp&, const Instr*, std::uint32_t);
const Instr* run_call_indirect(Warp&, const Instr*, std::uint32_t);
const Instr* run_vprintf(Warp&, const Instr*, std::uint32_t);
const Instr* run_set_conditional(Warp&, const Instr*, std::uint32_t);
const Instr* run_assertfail(Warp&, const Instr*, std::uint32_t);
const Instr* run_trap(Warp&, const Instr*, std::uint32_t);
const Instr* run_nothing(Warp&, const Instr*, std::uint32_t);
const Instr* run_barrier(Warp&, const Instr*, std::uint32_t);
const Instr* run_fence(Warp&, const Instr*, std::uint32_t);
const Instr* run_special(Warp&, const Instr*, std::uint32_t);
const Instr* run_activemask(Warp&, const Instr*, std::uint32_t);
const Instr* run_sleep(Warp&, const Instr*, std::uint32_t);
const Instr* run_pack(Warp&, const Instr*, std::uint32_t);
const Instr* run_unpack(Warp&, const Instr*, std::uint32_t);
const Instr* run_copy_async(Warp&, const Instr*, std::uint32_t);
const Instr* run_isspace(Warp&, const Instr*, std::uint32_t);
const Instr* run_local_address(Warp&, const Instr*, std::uint32_t);
const Instr* run_mbarrier(Warp&, const Instr*, std::uint32_t);
const Instr* run_mbarrier_wait(Warp&, const Instr*, std::uint32_t);
const Instr* run_mbarrier_pending(Warp&, const Instr*, std::uint32_t);
const Instr* run_copy_bulk(Warp&, const Instr*, std::uint32_t);
const Instr* run_alloca(Warp&, const Instr*, std::uint32_t);
const Instr* run_stack_save(Warp&, const Instr*, std::uint32_t);
const Instr* run_stack_restore(Warp&, const Instr*, std::uint32_t);
const Instr* run_device_malloc(Warp&, const Instr*, std::uint32_t);
const Instr* run_device_free(Warp&, const Instr*, std::uint32_t);
const Instr* run_texture(Warp&, const Instr*, std::uint32_t);
const Instr* run_move_128(Warp&, const Instr*, std::uint32_t);
const Instr* run_atomic_128(Warp&, const Instr*, std::uint32_t);  // exchange, or with mode 1 compare and swap
const Instr* run_fns(Warp&, const Instr*, std::uint32_t);
const Instr* run_predicate_to_integer(Warp&, const Instr*, std::uint32_t);

// Instr::mode of texture fetches: the number of coordinates, not counting the layer, and what is added to it.
constexpr std::uint16_t texture_layered = 4, texture_integer = 8;

// Instr::mode of barriers and of special registers.
constexpr std::uint16_t barrier_arrive = 1, barrier_popc = 2, barrier_and = 3, barrier_or = 4, barrier_sync = 0;
enum class Special : std::uint16_t {
    TidX,
    TidY,
    TidZ,
    NtidX,
    NtidY,
    NtidZ,
    CtaidX,
    CtaidY,
    CtaidZ,
    NctaidX,
    NctaidY,
    NctaidZ,
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    Gridid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    Clock,
    ClockHi,
    Clock64,
    Globaltimer,
    GlobaltimerLo,
    GlobaltimerHi,
    Envreg1,
    Envreg2,
    EnvregZero,
    ReservedShared,
    DynamicShared,
    TotalShared,
    WarpSize,
    Zero,
    One,
};

}  // namespace hpe::soft::exec
