// SPDX-License-Identifier: MIT
// Texture objects without filtering, against a model written from the CUDA C++ Programming Guide ("Texture Fetching",
// nearest-point sampling): every format, read mode, address mode, kind of coordinate and kind of memory.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"

namespace {

enum class Form { Fetch1D, Tex1D, Tex2D, Tex3D, Layered1D, Layered2D, Lod2D };

struct Place {
    float x, y, z;
    int index;  // a layer, or what tex1Dfetch is given
};

template <class R>
__global__ void fetch(cudaTextureObject_t t, Form form, const Place* at, R* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place p = at[i];
    switch (form) {
        case Form::Fetch1D: out[i] = tex1Dfetch<R>(t, p.index); break;
        case Form::Tex1D: out[i] = tex1D<R>(t, p.x); break;
        case Form::Tex2D: out[i] = tex2D<R>(t, p.x, p.y); break;
        case Form::Tex3D: out[i] = tex3D<R>(t, p.x, p.y, p.z); break;
        case Form::Layered1D: out[i] = tex1DLayered<R>(t, p.x, p.index); break;
        case Form::Layered2D: out[i] = tex2DLayered<R>(t, p.x, p.y, p.index); break;
        case Form::Lod2D: out[i] = tex2DLod<R>(t, p.x, p.y, 0.0f); break;
    }
}

std::mt19937 random_numbers(11);
int below(int n) { return static_cast<int>(random_numbers() % static_cast<unsigned>(n)); }

// What a texture is made of.
struct Texels {
    cudaChannelFormatDesc format;
    int channels, bytes;  // of one channel
    int width, height, depth, layers;
    std::vector<unsigned char> data;

    Texels(int bits, cudaChannelFormatKind kind, int n, int w, int h, int d, int l)
        : format(cudaCreateChannelDesc(bits, n > 1 ? bits : 0, n > 2 ? bits : 0, n > 2 ? bits : 0, kind)), channels(n),
          bytes(bits / 8), width(w), height(h), depth(d), layers(l), data(element() * w * h * d * l) {
        for (auto& b : data) b = static_cast<unsigned char>(random_numbers());
        // The two lowest values of signed formats, the highest ones, zero.
        const unsigned char edges[] = {0x80, 0x81, 0x7f, 0xff, 0};
        if (bits == 8) std::memcpy(data.data(), edges, sizeof edges);
        const unsigned short wide[] = {0x8000, 0x8001, 0x7fff, 0xffff, 0};
        if (bits == 16) std::memcpy(data.data(), wide, sizeof wide);
    }
    std::size_t element() const { return static_cast<std::size_t>(channels * bytes); }
    std::size_t row() const { return element() * width; }
    const unsigned char* at(int x, int y, int z, int layer) const {
        return data.data() + ((static_cast<std::size_t>(layer + z) * height + y) * width + x) * element();
    }
};

struct Reading {
    cudaTextureAddressMode mode = cudaAddressModeClamp;
    bool normalized = false, as_float = false;
    float border[4] = {};
};

// floor of the coordinate after the address mode; -1: outside of the texture, where the border is.
int model_index(double x, int n, const Reading& r) {
    cudaTextureAddressMode mode = r.mode;
    if (!r.normalized && (mode == cudaAddressModeWrap || mode == cudaAddressModeMirror)) mode = cudaAddressModeClamp;
    if (r.normalized) {
        const double whole = std::floor(x), fraction = x - whole;
        if (mode == cudaAddressModeWrap || mode == cudaAddressModeMirror) x = fraction;
        x *= n;
        // Of mirrored texels, also on their edges, where the guide's formula gives the neighbour (seen on an H200).
        if (mode == cudaAddressModeMirror && std::fmod(whole, 2) != 0) x = n - 1 - std::floor(x);
    }
    const double i = std::floor(x);
    if (i >= 0 && i < n) return static_cast<int>(i);
    if (mode == cudaAddressModeBorder) return -1;
    return i < 0 ? 0 : n - 1;
}

// A half as a number, by its definition.
float half_value(unsigned short h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const double sign = h >> 15 ? -1 : 1;
    if (exponent == 31) return mantissa ? NAN : static_cast<float>(sign * INFINITY);
    if (exponent == 0) return static_cast<float>(sign * std::ldexp(mantissa, -24));
    return static_cast<float>(sign * std::ldexp(1024 + mantissa, exponent - 25));
}

// Sign or zero extended, as a 32-bit number, or a float's bits.
unsigned model_channel(const unsigned char* p, const Texels& t, bool as_float) {
    unsigned raw = 0;
    std::memcpy(&raw, p, t.bytes);
    float f = 0;
    if (t.format.f == cudaChannelFormatKindFloat) {
        if (t.bytes == 4) return raw;
        f = half_value(static_cast<unsigned short>(raw));
    } else if (t.format.f == cudaChannelFormatKindUnsigned) {
        if (!as_float || t.bytes == 4) return raw;
        f = static_cast<float>(raw) / (t.bytes == 1 ? 255.0f : 65535.0f);
    } else {
        const int shift = 32 - 8 * t.bytes, v = static_cast<int>(raw << shift) >> shift;
        if (!as_float || t.bytes == 4) return static_cast<unsigned>(v);
        f = static_cast<float>(v) / (t.bytes == 1 ? 127.0f : 32767.0f);
        if (f < -1) f = -1;
    }
    unsigned bits;
    std::memcpy(&bits, &f, sizeof bits);
    return bits;
}

std::vector<unsigned> model(const Texels& t, Form form, const Reading& r, const Place& p) {
    std::vector<unsigned> result(t.channels, 0);
    int x = 0, y = 0, z = 0, layer = 0;
    if (form == Form::Fetch1D) {
        if (p.index < 0 || p.index >= t.width) return result;
        x = p.index;
    } else {
        x = model_index(p.x, t.width, r);
        if (form != Form::Tex1D && form != Form::Layered1D) y = model_index(p.y, t.height, r);
        if (form == Form::Tex3D) z = model_index(p.z, t.depth, r);
        if (form == Form::Layered1D || form == Form::Layered2D) layer = p.index;
        if (x < 0 || y < 0 || z < 0) {
            std::memcpy(result.data(), r.border, sizeof(unsigned) * t.channels);
            return result;
        }
    }
    for (int c = 0; c < t.channels; c++)
        result[c] = model_channel(t.at(x, y, z, layer) + c * t.bytes, t, r.as_float);
    return result;
}

// Near the middle of texels, inside and outside of the texture; on their edges where arithmetic is exact.
float coordinate(int n, const Reading& r) {
    const bool exact = !r.normalized || (n & (n - 1)) == 0;
    const float fractions[] = {0.5f, 0.25f, 0.75f, 0.0f};
    const float fraction = fractions[below(exact ? 4 : 3)];
    const int texel = below(5 * n) - 2 * n;
    const float x = static_cast<float>(texel) + fraction;
    return r.normalized ? x / static_cast<float>(n) : x;
}

cudaTextureDesc description(const Reading& r) {
    cudaTextureDesc d{};
    for (auto& mode : d.addressMode) mode = r.mode;
    d.filterMode = cudaFilterModePoint;
    d.readMode = r.as_float ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    d.normalizedCoords = r.normalized;
    std::memcpy(d.borderColor, r.border, sizeof r.border);
    return d;
}

template <class R, class Channel>
void check(cudaTextureObject_t texture, const Texels& t, Form form, const Reading& r) {
    constexpr int count = 96;
    std::vector<Place> places(count);
    for (auto& p : places) {
        p = {coordinate(t.width, r), coordinate(t.height, r), coordinate(t.depth, r), below(t.layers)};
        if (form == Form::Fetch1D) p.index = below(3 * t.width) - t.width;
    }
    Buffer<Place> at(count);
    Buffer<R> out(count);
    at.put(places.data());
    fetch<R><<<3, 32>>>(texture, form, at.p, out.p, count);
    CUDA(cudaGetLastError());
    std::vector<R> got(count);
    out.get(got.data());
    for (int i = 0; i < count; i++) {
        const auto wanted = model(t, form, r, places[i]);
        Channel channels[4];
        std::memcpy(channels, &got[i], sizeof(R));
        for (int c = 0; c < t.channels; c++) {
            Channel expected;
            if (sizeof(Channel) == 4)
                std::memcpy(&expected, &wanted[c], sizeof expected);
            else
                expected = static_cast<Channel>(wanted[c]);
            const bool nan = t.format.f == cudaChannelFormatKindFloat && expected != expected;
            if (nan ? channels[c] == channels[c] : std::memcmp(&channels[c], &expected, sizeof expected) != 0) {
                std::fprintf(stderr, "%d bits, kind %d, %d channels, form %d, mode %d%s%s: (%g %g %g %d) channel %d\n",
                             t.bytes * 8, t.format.f, t.channels, static_cast<int>(form), r.mode,
                             r.normalized ? ", normalized" : "", r.as_float ? ", as float" : "", places[i].x,
                             places[i].y, places[i].z, places[i].index, c);
                std::exit(1);
            }
        }
    }
}

template <class R, class Channel>
void with_array(const Texels& t, Form form, const Reading& r) {
    cudaArray_t array;
    const bool layered = form == Form::Layered1D || form == Form::Layered2D;
    const cudaExtent extent{static_cast<std::size_t>(t.width),
                            form == Form::Tex1D || form == Form::Layered1D ? 0 : static_cast<std::size_t>(t.height),
                            layered              ? static_cast<std::size_t>(t.layers)
                            : form == Form::Tex3D ? static_cast<std::size_t>(t.depth)
                                                  : 0};
    CUDA(cudaMalloc3DArray(&array, &t.format, extent, layered ? cudaArrayLayered : 0));
    cudaMemcpy3DParms p{};
    p.srcPtr = cudaPitchedPtr{const_cast<unsigned char*>(t.data.data()), t.row(), t.row(),
                              static_cast<std::size_t>(t.height)};
    p.dstArray = array;
    p.extent = cudaExtent{extent.width, extent.height ? extent.height : 1, extent.depth ? extent.depth : 1};
    p.kind = cudaMemcpyHostToDevice;
    CUDA(cudaMemcpy3D(&p));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    const cudaTextureDesc reading = description(r);
    cudaTextureObject_t texture;
    CUDA(cudaCreateTextureObject(&texture, &resource, &reading, nullptr));
    check<R, Channel>(texture, t, form, r);
    cudaResourceDesc told;
    cudaTextureDesc told_reading;
    CUDA(cudaGetTextureObjectResourceDesc(&told, texture));
    CUDA(cudaGetTextureObjectTextureDesc(&told_reading, texture));
    EXPECT(told.resType == cudaResourceTypeArray && told.res.array.array == array);
    EXPECT(std::memcmp(told_reading.addressMode, reading.addressMode, sizeof reading.addressMode) == 0);
    EXPECT(told_reading.filterMode == reading.filterMode && told_reading.readMode == reading.readMode);
    EXPECT(told_reading.normalizedCoords == reading.normalizedCoords);
    CUDA(cudaDestroyTextureObject(texture));
    CUDA(cudaFreeArray(array));
}

template <class R, class Channel>
void with_memory(const Texels& t, const Reading& r) {
    // In one dimension.
    Buffer<unsigned char> memory(t.row());
    memory.put(t.data.data());
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory.p;
    resource.res.linear.desc = t.format;
    resource.res.linear.sizeInBytes = t.row();
    cudaTextureDesc reading = description(r);
    cudaTextureObject_t texture;
    // Such memory ignores the filter mode, like address modes; only of integers it must not be asked.
    reading.filterMode = cudaFilterModeLinear;
    if (!r.as_float && t.format.f != cudaChannelFormatKindFloat) {
        EXPECT(cudaCreateTextureObject(&texture, &resource, &reading, nullptr) == cudaErrorInvalidFilterSetting);
        EXPECT(cudaGetLastError() == cudaErrorInvalidFilterSetting);
        reading.filterMode = cudaFilterModePoint;
    }
    CUDA(cudaCreateTextureObject(&texture, &resource, &reading, nullptr));
    check<R, Channel>(texture, t, Form::Fetch1D, r);
    cudaResourceDesc told;
    CUDA(cudaGetTextureObjectResourceDesc(&told, texture));
    EXPECT(told.resType == cudaResourceTypeLinear && told.res.linear.devPtr == memory.p);
    EXPECT(told.res.linear.sizeInBytes == t.row());
    EXPECT(std::memcmp(&told.res.linear.desc, &t.format, sizeof t.format) == 0);
    CUDA(cudaDestroyTextureObject(texture));

    // In rows.
    void* rows;
    std::size_t pitch;
    CUDA(cudaMallocPitch(&rows, &pitch, t.row(), t.height));
    CUDA(cudaMemcpy2D(rows, pitch, t.data.data(), t.row(), t.row(), t.height, cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D = {rows, t.format, static_cast<std::size_t>(t.width), static_cast<std::size_t>(t.height),
                            pitch};
    reading = description(r);
    CUDA(cudaCreateTextureObject(&texture, &resource, &reading, nullptr));
    check<R, Channel>(texture, t, Form::Tex2D, r);
    CUDA(cudaGetTextureObjectResourceDesc(&told, texture));
    EXPECT(std::memcmp(&told.res.pitch2D, &resource.res.pitch2D, sizeof told.res.pitch2D) == 0);
    CUDA(cudaDestroyTextureObject(texture));
    CUDA(cudaFree(rows));
}

// A format, in all forms; and the address modes, in turn.
template <class R, class Channel>
void format(int bits, cudaChannelFormatKind kind, int channels, bool as_float) {
    constexpr Form forms[] = {Form::Tex1D, Form::Tex2D, Form::Tex3D, Form::Layered1D, Form::Layered2D, Form::Lod2D};
    const bool half = kind == cudaChannelFormatKindFloat && bits == 16;
    for (const Form form : forms)
        for (const auto mode : {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder})
            for (const bool normalized : {false, true}) {
                const bool exact = below(2) == 0;
                const bool flat = form == Form::Tex1D || form == Form::Layered1D;
                const Texels t(bits, kind, channels, exact ? 16 : 13, flat ? 1 : exact ? 4 : 7,
                               form == Form::Tex3D ? (exact ? 2 : 5) : 1,
                               form == Form::Layered1D || form == Form::Layered2D ? 3 : 1);
                Reading r{mode, normalized, as_float, {}};
                for (int c = 0; c < channels; c++) {
                    // Border colours that the format holds.
                    const int integer = (c + 1) * (kind == cudaChannelFormatKindSigned ? -7 : 7);
                    if (as_float || half)
                        r.border[c] = static_cast<float>(c & 1);
                    else if (kind == cudaChannelFormatKindFloat)
                        r.border[c] = 0.1f * static_cast<float>(c + 1);
                    else
                        std::memcpy(&r.border[c], &integer, sizeof integer);
                }
                with_array<R, Channel>(t, form, r);
                if (form == Form::Tex2D) with_memory<R, Channel>(t, r);
            }
}

template <class One, class Two, class Four, class Channel>
void formats(int bits, cudaChannelFormatKind kind, bool as_float) {
    format<One, Channel>(bits, kind, 1, as_float);
    format<Two, Channel>(bits, kind, 2, as_float);
    format<Four, Channel>(bits, kind, 4, as_float);
}

cudaError_t create(const cudaResourceDesc& resource, const cudaTextureDesc& reading) {
    cudaTextureObject_t texture = 0;
    const cudaError_t e = cudaCreateTextureObject(&texture, &resource, &reading, nullptr);
    if (e == cudaSuccess) CUDA(cudaDestroyTextureObject(texture));
    cudaGetLastError();
    return e;
}

void errors() {
    cudaDeviceProp limits;
    int longest;
    CUDA(cudaGetDeviceProperties(&limits, 0));
    CUDA(cudaDeviceGetAttribute(&longest, cudaDevAttrMaxTexture1DLinearWidth, 0));
    Buffer<float> memory(1 << 16);
    cudaTextureDesc reading{};
    cudaResourceDesc linear{}, pitched{};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear.devPtr = memory.p;
    linear.res.linear.desc = cudaCreateChannelDesc<float>();
    linear.res.linear.sizeInBytes = 4096;
    EXPECT(create(linear, reading) == cudaSuccess);
    cudaResourceDesc bad = linear;
    bad.res.linear.devPtr = memory.p + 1;
    EXPECT(create(bad, reading) == cudaErrorInvalidValue);
    bad.res.linear.devPtr = nullptr;
    EXPECT(create(bad, reading) == cudaErrorInvalidValue);
    // The attribute is no limit, and there may be no texel at all.
    bad = linear;
    bad.res.linear.sizeInBytes = (static_cast<std::size_t>(longest) + 1) * sizeof(float);
    EXPECT(create(bad, reading) == cudaSuccess);
    bad.res.linear.sizeInBytes = 0;
    EXPECT(create(bad, reading) == cudaSuccess);
    bad = linear;
    bad.res.linear.desc = cudaCreateChannelDesc(32, 32, 32, 0, cudaChannelFormatKindFloat);
    EXPECT(create(bad, reading) == cudaErrorInvalidChannelDescriptor);
    pitched.resType = cudaResourceTypePitch2D;
    pitched.res.pitch2D = {memory.p, cudaCreateChannelDesc<float>(), 100, 50, 512};
    EXPECT(create(pitched, reading) == cudaSuccess);
    bad = pitched;
    bad.res.pitch2D.pitchInBytes = 512 - limits.texturePitchAlignment / 2;
    EXPECT(create(bad, reading) == cudaErrorInvalidValue);
    bad = pitched;
    bad.res.pitch2D.height = static_cast<std::size_t>(limits.maxTexture2DLinear[1]) + 1;
    EXPECT(create(bad, reading) == cudaErrorInvalidValue);
    std::size_t width;
    const auto f = cudaCreateChannelDesc<float>();
    CUDA(cudaDeviceGetTexture1DLinearMaxWidth(&width, &f, 0));
    EXPECT(width == std::size_t{1} << 30);
    // Handles that are none, and twice.
    cudaTextureObject_t texture;
    CUDA(cudaCreateTextureObject(&texture, &linear, &reading, nullptr));
    cudaResourceViewDesc view;  // there is none, and what is written then differs from driver to driver
    CUDA(cudaGetTextureObjectResourceViewDesc(&view, texture));
    CUDA(cudaDestroyTextureObject(texture));
    CUDA(cudaDestroyTextureObject(texture));
    EXPECT(cudaGetTextureObjectResourceDesc(&bad, texture) == cudaErrorInvalidValue);
    CUDA(cudaDestroyTextureObject(0));
}

// An array of one row reads like one of one dimension; what kernels write is there for the next one.
__global__ void add_one(float* p, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] += 1;
}

void uses() {
    const int n = 40;
    std::vector<float> values(n);
    for (int i = 0; i < n; i++) values[i] = static_cast<float>(i) * 1.5f;
    const auto f = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CUDA(cudaMallocArray(&array, &f, n, 1));
    CUDA(cudaMemcpy2DToArray(array, 0, 0, values.data(), n * sizeof(float), n * sizeof(float), 1,
                             cudaMemcpyHostToDevice));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc reading{};
    reading.addressMode[0] = cudaAddressModeClamp;
    cudaTextureObject_t row, memory;
    CUDA(cudaCreateTextureObject(&row, &resource, &reading, nullptr));
    Buffer<float> buffer(n), out(n);
    buffer.put(values.data());
    resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = buffer.p;
    resource.res.linear.desc = f;
    resource.res.linear.sizeInBytes = n * sizeof(float);
    CUDA(cudaCreateTextureObject(&memory, &resource, &reading, nullptr));
    std::vector<Place> places(n);
    for (int i = 0; i < n; i++) places[i] = {static_cast<float>(n - 1 - i), 0, 0, n - 1 - i};
    Buffer<Place> at(n);
    at.put(places.data());
    std::vector<float> got(n);
    fetch<float><<<2, 32>>>(row, Form::Tex1D, at.p, out.p, n);
    out.get(got.data());
    for (int i = 0; i < n; i++) EXPECT(got[i] == values[n - 1 - i]);
    for (int round = 1; round < 4; round++) {
        add_one<<<2, 32>>>(buffer.p, n);
        fetch<float><<<2, 32>>>(memory, Form::Fetch1D, at.p, out.p, n);
        out.get(got.data());
        for (int i = 0; i < n; i++) EXPECT(got[i] == values[n - 1 - i] + static_cast<float>(round));
    }
    CUDA(cudaDestroyTextureObject(row));
    CUDA(cudaDestroyTextureObject(memory));
    CUDA(cudaFreeArray(array));
}

}  // namespace

// Border colours that the format does not hold: what an H200 returns.
template <class R>
__global__ void outside(cudaTextureObject_t t, R* out) { *out = tex2D<R>(t, -3, 0); }
template <class R, class Given>
void border(cudaChannelFormatDesc format, bool as_float, Given given, R expected) {
    cudaArray_t array;
    CUDA(cudaMallocArray(&array, &format, 4, 4));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc d{};
    for (auto& m : d.addressMode) m = cudaAddressModeBorder;
    d.readMode = as_float ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    std::memcpy(&d.borderColor[0], &given, sizeof given);
    cudaTextureObject_t t;
    CUDA(cudaCreateTextureObject(&t, &resource, &d, nullptr));
    R *out, got;
    CUDA(cudaMalloc(&out, sizeof(R)));
    outside<R><<<1, 1>>>(t, out);
    CUDA(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost));
    EXPECT(std::memcmp(&got, &expected, sizeof got) == 0);
    CUDA(cudaFree(out));
    CUDA(cudaDestroyTextureObject(t));
    CUDA(cudaDestroyTextureObject(t));  // no error
    CUDA(cudaFreeArray(array));
}
void borders() {
    const auto of = [](int bits, cudaChannelFormatKind kind) { return cudaCreateChannelDesc(bits, 0, 0, 0, kind); };
    constexpr auto s = cudaChannelFormatKindSigned, u = cudaChannelFormatKindUnsigned, f = cudaChannelFormatKindFloat;
    border<float>(of(8, u), true, 0.3f, 76 / 255.0f);
    border<float>(of(8, u), true, 0.5f, 127 / 255.0f);
    border<float>(of(8, u), true, -2.0f, 0.0f);
    border<float>(of(8, s), true, -0.25f, -32 / 127.0f);
    border<float>(of(16, s), true, 0.25f, 8192 / 32767.0f);
    border<float>(of(16, u), true, 100.0f, 1.0f);
    border<float>(of(16, f), false, 0.3f, 1228 / 4096.0f);
    border<float>(of(16, f), false, 70000.0f, 65504.0f);
    border<float>(of(16, f), false, 3e-6f, 50 / 16777216.0f);
    border<signed char>(of(8, s), false, 300, 44);
    border<unsigned char>(of(8, u), false, -129, 127);
    border<short>(of(16, s), false, -32769, 32767);
    border<unsigned short>(of(16, u), false, 65536, 0);
}

int main() {
    borders();
    constexpr auto s = cudaChannelFormatKindSigned, u = cudaChannelFormatKindUnsigned, f = cudaChannelFormatKindFloat;
    formats<signed char, char2, char4, signed char>(8, s, false);
    formats<unsigned char, uchar2, uchar4, unsigned char>(8, u, false);
    formats<short, short2, short4, short>(16, s, false);
    formats<unsigned short, ushort2, ushort4, unsigned short>(16, u, false);
    formats<int, int2, int4, int>(32, s, false);
    formats<unsigned, uint2, uint4, unsigned>(32, u, false);
    formats<float, float2, float4, float>(32, f, false);
    formats<float, float2, float4, float>(16, f, false);
    for (const int bits : {8, 16})
        for (const auto kind : {s, u}) formats<float, float2, float4, float>(bits, kind, true);
    uses();
    errors();
    CUDA(cudaDeviceSynchronize());
    std::printf("textures: ok\n");
}
