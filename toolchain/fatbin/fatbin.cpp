// SPDX-License-Identifier: MIT
// The fat binary reader. The container is a 16-byte header followed by entries, each with a header of its own that
// tells kind, compute capability, sizes and compression. Nothing in it is trusted: every length is checked first.
#include "toolchain/fatbin/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace hpe::fatbin {
namespace {

constexpr std::uint32_t wrapper_magic = 0x466243b1;
constexpr std::uint32_t container_magic = 0xba55ed50;
constexpr std::uint16_t kind_ptx = 1;
constexpr std::uint64_t flag_lz4 = 0x2000;
constexpr std::uint64_t flag_zstd = 0x8000;
constexpr std::uint64_t flag_specific = 0x300000;  // of one architecture (sm_90a) or one family (sm_100f)
// PTX of the largest programs is some tens of MiB; a size beyond this is damage, not a program.
constexpr std::uint64_t largest_text = std::uint64_t{256} << 20;
// A byte of LZ4 stands for 255 bytes of text at most (LZ4 block format), so a larger claim need not be tried.
constexpr std::uint64_t most_lz4_expands = 255;
constexpr std::size_t most_containers = 64;

constexpr std::uint32_t version_of_linked = 2;

// What __cudaRegisterFatBinary gets. Of a linked program `data` is what nvcc linked itself: machine code, or nothing.
struct Wrapper {
    std::uint32_t magic;
    std::uint32_t version;
    const void* data;
    const void* const* prelinked;  // version 2: up to a null pointer, the fat binaries of the program's parts
};

struct ContainerHeader {
    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t header_bytes;
    std::uint64_t payload_bytes;  // all entries together
};
static_assert(sizeof(ContainerHeader) == 16);

struct EntryHeader {
    std::uint16_t kind;
    std::uint16_t version;
    std::uint32_t header_bytes;
    std::uint64_t padded_bytes;      // payload, padded to 8
    std::uint32_t compressed_bytes;  // 0: not compressed
    std::uint32_t unknown;
    std::uint16_t minor, major;
    std::uint32_t arch;
    std::uint32_t name_offset, name_bytes;
    std::uint64_t flags;
    std::uint64_t reserved;
    std::uint64_t text_bytes;  // uncompressed; 0: not compressed
};
static_assert(sizeof(EntryHeader) == 64);

template <class T>
bool read(std::span<const std::byte> bytes, std::uint64_t at, T& out) {
    if (at > bytes.size() || bytes.size() - at < sizeof(T)) return false;
    std::memcpy(&out, bytes.data() + at, sizeof(T));
    return true;
}

// The text ends at its first NUL: nvcc pads it.
void cut_at_nul(std::string& text) {
    if (const auto end = text.find('\0'); end != std::string::npos) text.resize(end);
}

int target_of(const std::string& text) {
    const auto at = text.find(".target");
    if (at == std::string::npos) return 0;
    const auto name = text.find("sm_", at);
    const auto line_end = text.find('\n', at);
    if (name == std::string::npos || name > line_end) return 0;
    int arch = 0;
    for (std::size_t i = name + 3; i < text.size() && text[i] >= '0' && text[i] <= '9' && arch < 10000; i++)
        arch = arch * 10 + (text[i] - '0');
    return arch;
}

bool looks_like_ptx(const std::string& text) {
    const auto at = text.find(".version");
    return at != std::string::npos && text.find(".target", at) != std::string::npos;
}

struct Entry {
    EntryHeader header{};
    std::span<const std::byte> payload;
};

// The text grows with what really comes out: memory is not taken for what an entry merely claims.
bool unpack_zstd(const char* from, std::size_t compressed, std::size_t size, std::string& text, std::string& why) {
    const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
    if (stream == nullptr) throw std::bad_alloc();
    ZSTD_inBuffer in{from, compressed, 0};
    std::size_t filled = 0;
    for (std::size_t state = 1; state != 0 || in.pos < in.size;) {
        text.resize(std::min(size, filled + (std::size_t{1} << 20)));
        const std::size_t read = in.pos;
        ZSTD_outBuffer out{text.data(), text.size(), filled};
        state = ZSTD_decompressStream(stream.get(), &out, &in);
        if (ZSTD_isError(state) != 0) {
            why = std::string("fat binary: Zstandard: ") + ZSTD_getErrorName(state);
            return false;
        }
        if (state != 0 && out.pos == filled && in.pos == read) {
            why = "fat binary: Zstandard data of another length than stated";
            return false;
        }
        filled = out.pos;
    }
    text.resize(filled);
    return true;
}

bool unpack(const Entry& entry, std::string& text, std::string& why) {
    const EntryHeader& h = entry.header;
    const char* const from = reinterpret_cast<const char*>(entry.payload.data());
    if ((h.flags & (flag_lz4 | flag_zstd)) == 0) {
        // Some tools set the compressed size of an entry that is none; the padding is cut at the first NUL.
        text.assign(from, entry.payload.size());
        cut_at_nul(text);
        return true;
    }
    if (h.compressed_bytes == 0 || h.compressed_bytes > entry.payload.size()) {
        why = "fat binary: a compressed entry is longer than its payload";
        return false;
    }
    if (h.text_bytes == 0 || h.text_bytes > largest_text) {
        why = "fat binary: an entry states an impossible size of its text";
        return false;
    }
    const std::size_t size = static_cast<std::size_t>(h.text_bytes);
    if ((h.flags & flag_zstd) != 0) {
        if (!unpack_zstd(from, h.compressed_bytes, size, text, why)) return false;
    } else {
        if (h.compressed_bytes > 0x7e000000u || size / most_lz4_expands > h.compressed_bytes) {
            why = "fat binary: an LZ4 entry states an impossible size";
            return false;
        }
        text.assign(size, '\0');
        const int got =
            LZ4_decompress_safe(from, text.data(), static_cast<int>(h.compressed_bytes), static_cast<int>(size));
        if (got < 0) {
            why = "fat binary: damaged LZ4 data";
            return false;
        }
        text.resize(static_cast<std::size_t>(got));
    }
    cut_at_nul(text);
    return true;
}

// Highest first, but what the device can run; only if there is none such, the lowest above. What was compiled for one
// architecture alone comes last but on that one, and there after what any later one could run, too.
bool better(const EntryHeader& candidate, const EntryHeader& best, std::uint32_t device) {
    const bool known = candidate.arch <= device, best_known = best.arch <= device;
    if (known != best_known) return known;
    const bool specific = (candidate.flags & flag_specific) != 0, best_specific = (best.flags & flag_specific) != 0;
    const bool foreign = specific && candidate.arch != device, best_foreign = best_specific && best.arch != device;
    if (foreign != best_foreign) return best_foreign;
    if (candidate.arch != best.arch) return known == (candidate.arch > best.arch);
    return best_specific && !specific;
}

bool extract_from_containers(std::span<const std::byte> bytes, Ptx& out, std::string& why, std::uint32_t device) {
    bool found = false, saw_entry = false;
    Entry best;
    std::uint64_t at = 0;
    for (std::size_t count = 0; count < most_containers; count++) {
        ContainerHeader container{};
        if (!read(bytes, at, container) || container.magic != container_magic) break;
        if (container.header_bytes < sizeof(ContainerHeader) || container.header_bytes > bytes.size() - at ||
            container.payload_bytes > bytes.size() - at - container.header_bytes) {
            why = "fat binary: the header states more than there is";
            return false;
        }
        std::uint64_t entry_at = at + container.header_bytes;
        const std::uint64_t end = entry_at + container.payload_bytes;
        const auto inside = bytes.first(static_cast<std::size_t>(end));
        while (entry_at < end) {
            Entry entry;
            if (!read(inside, entry_at, entry.header)) {
                why = "fat binary: an entry is cut off";
                return false;
            }
            const EntryHeader& h = entry.header;
            if (h.header_bytes < sizeof(EntryHeader) || h.header_bytes > end - entry_at ||
                h.padded_bytes > end - entry_at - h.header_bytes) {
                why = "fat binary: an entry is longer than the container";
                return false;
            }
            entry.payload = inside.subspan(static_cast<std::size_t>(entry_at + h.header_bytes),
                                           static_cast<std::size_t>(h.padded_bytes));
            saw_entry = true;
            if (h.kind == kind_ptx && (!found || better(h, best.header, device))) {
                best = entry;
                found = true;
            }
            entry_at += h.header_bytes + h.padded_bytes;
        }
        at = end;
    }
    if (!found) {
        why = saw_entry ? "fat binary: no PTX in it, only machine code" : "fat binary: it is empty";
        return false;
    }
    if (!unpack(best, out.text, why)) return false;
    out.arch = static_cast<int>(best.header.arch);
    return true;
}

// Byte by byte, because a text may be shorter than the magic number.
bool starts_with(const void* image, std::uint32_t magic) {
    const auto* at = static_cast<const unsigned char*>(image);
    for (int i = 0; i < 4; i++)
        if (at[i] != static_cast<unsigned char>(magic >> (8 * i))) return false;
    return true;
}

bool take_text(std::string text, Ptx& out, std::string& why) {
    cut_at_nul(text);
    if (!looks_like_ptx(text)) {
        why = "neither a fat binary nor PTX text";
        return false;
    }
    out.arch = target_of(text);
    out.text = std::move(text);
    return true;
}

}  // namespace

bool extract_ptx(std::span<const std::byte> image, Ptx& out, std::string& why, int device) {
    try {
        std::uint32_t magic = 0;
        if (read(image, 0, magic) && magic == container_magic)
            return extract_from_containers(image, out, why, static_cast<std::uint32_t>(device));
        return take_text(std::string(reinterpret_cast<const char*>(image.data()), image.size()), out, why);
    } catch (const std::bad_alloc&) {
        why = "out of memory";
        return false;
    }
}

bool extract_ptx(const void* image, Ptx& out, std::string& why, int device) {
    if (image == nullptr) {
        why = "no image";
        return false;
    }
    if (starts_with(image, wrapper_magic)) {
        Wrapper wrapper{};
        std::memcpy(&wrapper, image, sizeof wrapper);
        if (wrapper.data == nullptr) {
            why = "fat binary: the wrapper points nowhere";
            return false;
        }
        image = wrapper.data;
    }
    if (starts_with(image, container_magic)) {
        ContainerHeader header{};
        std::memcpy(&header, image, sizeof header);
        if (header.payload_bytes > largest_text) {
            why = "fat binary: the header states an impossible size";
            return false;
        }
        const std::size_t size = header.header_bytes + static_cast<std::size_t>(header.payload_bytes);
        return extract_ptx(std::span(static_cast<const std::byte*>(image), size < 16 ? 16 : size), out, why, device);
    }
    if (*static_cast<const unsigned char*>(image) == 0x7f) {  // an ELF file
        why = "machine code without PTX (a cubin)";
        return false;
    }
    try {
        return take_text(static_cast<const char*>(image), out, why);
    } catch (const std::bad_alloc&) {
        why = "out of memory";
        return false;
    }
}

std::vector<const void*> prelinked(const void* image) {
    std::vector<const void*> parts;
    if (image == nullptr || !starts_with(image, wrapper_magic)) return parts;
    Wrapper wrapper{};
    std::memcpy(&wrapper, image, sizeof wrapper);
    if (wrapper.version != version_of_linked || wrapper.prelinked == nullptr) return parts;
    for (const void* const* at = wrapper.prelinked; *at != nullptr; ++at) parts.push_back(*at);
    return parts;
}

}  // namespace hpe::fatbin
