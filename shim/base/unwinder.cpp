// SPDX-License-Identifier: MIT
// libunwind's accessors over a copied stack and the files of modules.
#include "shim/base/unwinder.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <new>

#include "shim/base/modules.h"

#if __has_include(<libunwind-x86_64.h>)
#include <libunwind-x86_64.h>
#define HPE_HAVE_LIBUNWIND 1
#endif

namespace hpe::unwinder {

#ifdef HPE_HAVE_LIBUNWIND

namespace {

using SearchTable = int(unw_addr_space_t, unw_word_t, unw_dyn_info_t*, unw_proc_info_t*, int, void*);

// The functions under the names that the header's macros make of them.
struct Library {
    decltype(&::unw_create_addr_space) create_addr_space;
    decltype(&::unw_init_remote) init_remote;
    decltype(&::unw_step) step;
    decltype(&::unw_get_reg) get_reg;
    decltype(&::unw_is_signal_frame) is_signal_frame;
    decltype(&::unw_set_caching_policy) set_caching_policy;
    decltype(&::unw_flush_cache) flush_cache;
    SearchTable* search_table;
    unw_addr_space_t space;
};
constinit std::atomic<const Library*> library{nullptr};

struct Copy {
    const Registers& registers;
    std::span<const std::byte> stack;
    bool missed = false;  // something was wanted that was not copied
};
Copy& of(void* argument) noexcept { return *static_cast<Copy*>(argument); }

bool read_word(Copy& copy, std::uintptr_t address, std::uint64_t& word) noexcept {
    const auto begin = copy.registers.sp();
    if (address >= begin && address - begin <= copy.stack.size() && copy.stack.size() - (address - begin) >= 8) {
        std::memcpy(&word, copy.stack.data() + (address - begin), sizeof word);
        return true;
    }
    const auto module = modules::find(address);
    if (module != modules::kNone) return modules::read(module, address, word);
    copy.missed = true;
    return false;
}

int access_memory(unw_addr_space_t, unw_word_t address, unw_word_t* value, int write, void* argument) noexcept {
    std::uint64_t word = 0;
    if (write != 0 || !read_word(of(argument), address, word)) return -UNW_EINVAL;
    *value = word;
    return 0;
}

int access_register(unw_addr_space_t, unw_regnum_t number, unw_word_t* value, int write, void* argument) noexcept {
    const auto& registers = of(argument).registers.value;
    if (write != 0 || number < 0 || static_cast<std::size_t>(number) >= registers.size()) return -UNW_EBADREG;
    *value = registers[static_cast<std::size_t>(number)];
    return 0;
}

// The header of a binary search table (Linux Standard Base, ".eh_frame_hdr"): version, how three things are encoded,
// then where .eh_frame begins, and how many entries there are. All linkers write these encodings.
bool find_table(std::uint32_t number, std::uintptr_t at, unw_dyn_info_t& info) noexcept {
    constexpr std::uint64_t kVersionAndEncodings = 0x3b031b01;  // sdata4 from here; udata4; sdata4 from the table
    std::uint64_t words[2] = {};
    const auto aligned = at & ~std::uintptr_t{7};
    if (!modules::read(number, aligned, words[0]) || !modules::read(number, aligned + 8, words[1])) return false;
    std::uint32_t header[3] = {};
    const auto shift = at - aligned;
    if (shift % 4 != 0) return false;
    std::uint64_t third = 0;
    if (shift != 0 && !modules::read(number, aligned + 16, third)) return false;
    const std::uint64_t all[3] = {words[0], words[1], third};
    std::memcpy(header, reinterpret_cast<const char*>(all) + shift, sizeof header);
    if (header[0] != kVersionAndEncodings) return false;
    info.format = UNW_INFO_FORMAT_REMOTE_TABLE;
    info.u.rti.segbase = at;
    info.u.rti.table_data = at + sizeof header;
    info.u.rti.table_len = std::uint64_t{header[2]} * 8 / sizeof(unw_word_t);
    return true;
}

int find_procedure(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t* out, int wanted, void* argument) noexcept {
    const auto number = modules::find(ip);
    if (number == modules::kNone) return -UNW_ENOINFO;
    const auto& module = modules::at(number);
    unw_dyn_info_t info{};
    info.start_ip = module.begin;
    info.end_ip = module.end;
    info.gp = 0;
    if (module.unwind_table == 0 || !find_table(number, module.unwind_table, info)) return -UNW_ENOINFO;
    return library.load(std::memory_order_relaxed)->search_table(space, ip, &info, out, wanted, argument);
}

void put_info(unw_addr_space_t, unw_proc_info_t*, void*) noexcept {}
int no_list(unw_addr_space_t, unw_word_t*, void*) noexcept { return -UNW_ENOINFO; }
int no_float(unw_addr_space_t, unw_regnum_t, unw_fpreg_t*, int, void*) noexcept { return -UNW_EBADREG; }
int no_resume(unw_addr_space_t, unw_cursor_t*, void*) noexcept { return -UNW_EINVAL; }

#define HPE_NAME_OF(x) HPE_TEXT_OF(x)
#define HPE_TEXT_OF(x) #x

template <class Function>
bool find(void* from, const char* name, Function*& to) noexcept {
    to = reinterpret_cast<Function*>(dlsym(from, name));
    return to != nullptr;
}

}  // namespace

bool open() noexcept {
    if (is_open()) return true;
    void* const from = dlopen("libunwind-x86_64.so.8", RTLD_NOW | RTLD_LOCAL);
    if (from == nullptr) return false;
    Library found{};
    if (!find(from, HPE_NAME_OF(UNW_OBJ(create_addr_space)), found.create_addr_space) ||
        !find(from, HPE_NAME_OF(UNW_OBJ(init_remote)), found.init_remote) ||
        !find(from, HPE_NAME_OF(UNW_OBJ(step)), found.step) ||
        !find(from, HPE_NAME_OF(UNW_OBJ(get_reg)), found.get_reg) ||
        !find(from, HPE_NAME_OF(UNW_OBJ(is_signal_frame)), found.is_signal_frame) ||
        !find(from, HPE_NAME_OF(UNW_OBJ(set_caching_policy)), found.set_caching_policy) ||
        !find(from, HPE_NAME_OF(UNW_OBJ(flush_cache)), found.flush_cache) ||
        !find(from, HPE_NAME_OF(UNW_OBJ(dwarf_search_unwind_table)), found.search_table)) {
        return false;
    }
    // Newer versions of the library have more functions in it, which are missing here.
    static auto accessors = [] {
        union {
            unw_accessors_t functions;
            char room[512];
        } all = {.room = {}};
        all.functions.find_proc_info = find_procedure;
        all.functions.put_unwind_info = put_info;
        all.functions.get_dyn_info_list_addr = no_list;
        all.functions.access_mem = access_memory;
        all.functions.access_reg = access_register;
        all.functions.access_fpreg = no_float;
        all.functions.resume = no_resume;
        return all;
    }();
    found.space = found.create_addr_space(&accessors.functions, 0);
    if (found.space == nullptr) return false;
    found.set_caching_policy(found.space, UNW_CACHE_GLOBAL);
    // Two threads may come here at the end of a process: the first one's stays.
    const auto* const made = new (std::nothrow) Library(found);
    const Library* none = nullptr;
    if (made == nullptr || !library.compare_exchange_strong(none, made, std::memory_order_acq_rel)) delete made;
    return is_open();
}

bool is_open() noexcept { return library.load(std::memory_order_acquire) != nullptr; }

void walk(const Registers& registers, std::span<const std::byte> stack, Walk& out) noexcept {
    const auto& lib = *library.load(std::memory_order_acquire);
    Copy copy{registers, stack};
    unw_cursor_t cursor;
    out.count = 0;
    out.cut = false;
    bool interrupted = true;
    if (lib.init_remote(&cursor, lib.space, &copy) < 0) return;
    do {
        unw_word_t ip = 0, sp = 0;
        if (lib.get_reg(&cursor, UNW_X86_64_RIP, &ip) < 0 || lib.get_reg(&cursor, UNW_X86_64_RSP, &sp) < 0) return;
        if (ip == 0) return;
        if (out.count == out.frames.size()) {
            out.cut = true;
            return;
        }
        // A frame's caller lies above it, or the tables are wrong.
        if (out.count != 0 && sp <= out.frames[out.count - 1].sp && !interrupted) return;
        out.frames[out.count++] = {ip, sp, interrupted};
        interrupted = lib.is_signal_frame(&cursor) > 0;
        copy.missed = false;
    } while (lib.step(&cursor) > 0);
    out.cut = copy.missed;
}

void forget() noexcept {
    if (const Library* lib = library.load(std::memory_order_acquire)) lib->flush_cache(lib->space, 0, 0);
}

#else

bool open() noexcept { return false; }
bool is_open() noexcept { return false; }
void walk(const Registers&, std::span<const std::byte>, Walk& out) noexcept { out.count = 0; }
void forget() noexcept {}

#endif

}  // namespace hpe::unwinder
