// SPDX-License-Identifier: MIT
// Calls with wrong addresses, and with ranges that begin or end beside the memory that kernels use. Cases one by one;
// see io.h.
#include <limits.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <vector>

#include "io.h"

namespace {

constexpr std::size_t kMiB = 1 << 20, kPage = 4096;

// Pages that end with their last byte: nothing is readable behind them, before them neither.
class Alone {
public:
    explicit Alone(std::size_t pages) : bytes_(pages * kPage) {
        CHECK(cudaMalloc(&gpu_, bytes_));
        CHECK(cudaMemset(gpu_, 0, bytes_));
        CHECK(cudaDeviceSynchronize());
        host_ = gpu_;
        if (plain) return;
        host_ = static_cast<unsigned char*>(
            mmap(nullptr, bytes_ + 2 * kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        host_ += kMiB;
        mprotect(host_, bytes_, PROT_READ | PROT_WRITE);
    }
    ~Alone() { CHECK(cudaFree(gpu_)); }
    unsigned char* at(std::size_t offset = 0) const { return host_ + offset; }
    unsigned char* before(std::size_t bytes) const { return host_ - bytes; }
    std::size_t bytes() const { return bytes_; }
    void change(unsigned key) const {
        if (!plain) CHECK(cudaMemcpy(gpu_, host_, bytes_, cudaMemcpyHostToDevice));
        mix<><<<static_cast<unsigned>((bytes_ + 255) / 256), 256>>>(gpu_, bytes_, key);
        if (!plain) CHECK(cudaMemcpy(host_, gpu_, bytes_, cudaMemcpyDeviceToHost));
    }
    unsigned long long sum() const { return sum(bytes_); }
    unsigned long long sum(std::size_t bytes) const {
        std::vector<unsigned char> copy(bytes_);
        if (!plain) CHECK(cudaMemcpy(gpu_, host_, bytes_, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(copy.data(), gpu_, bytes_, cudaMemcpyDeviceToHost));
        Checksum sum;
        sum.add(copy.data(), bytes);
        return sum.value();
    }

private:
    unsigned char* gpu_ = nullptr;
    unsigned char* host_ = nullptr;
    const std::size_t bytes_;
};

struct Pair {
    int ends[2];
    explicit Pair(int type) {
        if (socketpair(AF_UNIX, type, 0, ends) != 0) std::exit(98);
    }
    ~Pair() {
        close(ends[0]);
        close(ends[1]);
    }
};

template <class T>
T* nowhere(std::uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

void wrong_vectors(int file) {
    // At the end of the last page that can be read, so that the second part lies behind it.
    auto* const pages =
        static_cast<char*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(pages + kPage, kPage);
    char text[10] = "text";
    auto* const half = reinterpret_cast<iovec*>(pages + kPage - sizeof(iovec));
    *half = {text, 4};
    for (iovec* parts : {nowhere<iovec>(8), nowhere<iovec>(0xdead'beef'dead'beef), half}) {
        result("readv", readv(file, parts, 2));
        result("writev", writev(file, parts, 2));
        result("preadv", preadv(file, parts, 2, 0));
        result("pwritev", pwritev(file, parts, 2, 0));
        result("preadv2", preadv2(file, parts, 2, 0, 0));
        result("pwritev2", pwritev2(file, parts, 2, 0, 0));
        result("of too many", readv(file, parts, 2000));
    }
    result("one of two", readv(file, half, 1));
    munmap(pages, kPage);
}
void wrong_messages(int socket) {
    msghdr message{};
    message.msg_iovlen = 1;
    mmsghdr list{};
    list.msg_hdr.msg_iovlen = 1;
    for (const std::uintptr_t address : {std::uintptr_t{8}, std::uintptr_t{0xdead'beef'dead'beef}}) {
        message.msg_iov = list.msg_hdr.msg_iov = nowhere<iovec>(address);
        result("sendmsg", sendmsg(socket, &message, MSG_DONTWAIT));
        result("recvmsg", recvmsg(socket, &message, MSG_DONTWAIT));
        result("sendmmsg", sendmmsg(socket, &list, 1, MSG_DONTWAIT));
        result("recvmmsg", recvmmsg(socket, &list, 1, MSG_DONTWAIT, nullptr));
        result("sendmsg", sendmsg(socket, nowhere<msghdr>(address), MSG_DONTWAIT));
        result("recvmsg", recvmsg(socket, nowhere<msghdr>(address), MSG_DONTWAIT));
        result("sendmmsg", sendmmsg(socket, nowhere<mmsghdr>(address), 1, MSG_DONTWAIT));
        result("recvmmsg", recvmmsg(socket, nowhere<mmsghdr>(address), 1, MSG_DONTWAIT, nullptr));
    }
}
void wrong_addresses(int, char**) {
    const File file(100);
    const Pair pair(SOCK_DGRAM);
    say("no device yet\n");
    wrong_vectors(file);
    wrong_messages(pair.ends[0]);
    const Memory data(10000);
    data.change(1);
    say("with an array\n");
    wrong_vectors(file);
    wrong_messages(pair.ends[0]);
    iovec part{data.at(), 100};
    mmsghdr list{};
    list.msg_hdr.msg_iov = &part;
    list.msg_hdr.msg_iovlen = 1;
    if (send(pair.ends[1], "abc", 3, 0) != 3) return;
    result("time nowhere", recvmmsg(pair.ends[0], &list, 1, MSG_DONTWAIT, nowhere<timespec>(8)));
    timespec none{0, 2000000000};
    result("no time", recvmmsg(pair.ends[0], &list, 1, MSG_DONTWAIT, &none));
    result("what came", recv(pair.ends[0], data.at(), 100, MSG_DONTWAIT));
    say("data %llx\n", data.sum());
}

void fill(int pipe, std::size_t bytes) {
    const std::string text(bytes, 'p');
    if (write(pipe, text.data(), bytes) != static_cast<ssize_t>(bytes)) std::exit(96);
}
void behind_the_end(int, char**) {
    const File file(3 * kMiB);
    const Alone data(2 * kMiB / kPage);
    data.change(2);
    const auto all = data.bytes();
    result("read", read(file, data.at(all - 100), 5000));
    say("offset %ld\n", file.offset());
    result("read, large", read(file, data.at(100), all + 5000));
    say("offset %ld\n", file.offset());
    result("pread, large", pread(file, data.at(100), all + 5000, 10));
    lseek(file, 0, SEEK_SET);
    data.change(3);
    result("write", write(file, data.at(all - 100), 5000));
    result("write, large", write(file, data.at(100), all + 5000));
    say("offset %ld\n", file.offset());
    result("pwrite", pwrite(file, data.at(all - 7), 5000, 5));
    result("read before", read(file, data.before(100), 5000));
    result("read before, large", read(file, data.before(kPage), all));
    result("pread before, large", pread(file, data.before(kPage), all, 0));
    result("write before", write(file, data.before(100), 5000));
    say("offset %ld\n", file.offset());
    char ordinary[100] = {};
    iovec parts[] = {{ordinary, 50}, {data.at(all - 10), 100}, {ordinary + 50, 50}};
    result("readv", preadv(file, parts, 3, 0));
    result("writev", pwritev(file, parts, 3, 100));
    say("file %llx data %llx\n", file.sum(), data.sum());
}
void behind_the_end_of_pipes(int, char**) {
    const Alone data(4);
    data.change(4);
    const auto all = data.bytes();
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) return;
    fill(ends[1], 10000);
    result("read", read(ends[0], data.at(all - 5000), 9000));
    result("the rest", read(ends[0], data.at(), all));
    fill(ends[1], 100);
    result("read before", read(ends[0], data.before(10), 50));
    result("the rest", read(ends[0], data.at(), all));
    // What lies behind the bytes of a short read may have been written, too.
    say("data %llx\n", data.sum(all - 5000 + 4096));
    const Pair stream(SOCK_STREAM), datagrams(SOCK_DGRAM);
    fill(stream.ends[1], 10000);
    result("recv", recv(stream.ends[0], data.at(all - 5000), 9000, MSG_DONTWAIT));
    result("send", send(stream.ends[0], data.at(all - 5000), 9000, MSG_DONTWAIT));
    fill(datagrams.ends[1], 10000);
    result("recv a datagram", recv(datagrams.ends[0], data.at(all - 5000), 9000, MSG_DONTWAIT));
    result("the next", recv(datagrams.ends[0], data.at(), 9000, MSG_DONTWAIT));
    result("send a datagram", send(datagrams.ends[0], data.at(all - 5000), 9000, MSG_DONTWAIT));
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    fill(datagrams.ends[1], 100);
    result("recvfrom", recvfrom(datagrams.ends[0], data.at(all - 5000), 9000, MSG_DONTWAIT,
                                reinterpret_cast<sockaddr*>(&from), &length));
    say("length %u\n", length);
}

// Arrays side by side, as one range.
void side_by_side(int, char**) {
    constexpr std::size_t kEach = 2 * kMiB, kArrays = 5;
    unsigned char* first = nullptr;
    std::vector<unsigned char*> all;
    if (plain) {
        for (int i = 0; i < 100 && first == nullptr; ++i) {
            unsigned char* one = nullptr;
            CHECK(cudaMalloc(&one, kEach));
            all.push_back(one);
            for (unsigned char* a : all) {
                std::size_t found = 0;
                for (unsigned char* b : all) found += b > a && b < a + kArrays * kEach && (b - a) % kEach == 0;
                if (found == kArrays - 1) first = a;
            }
        }
        if (first == nullptr) std::exit(95);
    } else {
        CHECK(cudaMalloc(&first, kArrays * kEach));
        all.push_back(first);
    }
    CHECK(cudaMemset(first, 1, kEach));
    std::vector<unsigned char> host(plain ? 0 : kArrays * kEach);
    unsigned char* const at = plain ? first : host.data();
    for (std::size_t i = 0; i < kArrays; ++i) {
        CHECK(cudaMemset(first + i * kEach, static_cast<int>(i), kEach));
        std::memset(at + i * kEach, static_cast<int>(i + 100), i % 2 != 0 ? kEach : 0);
        if (!plain && i % 2 == 0) std::memset(at + i * kEach, static_cast<int>(i), kEach);
    }
    CHECK(cudaDeviceSynchronize());
    const auto sum = [&] {
        std::vector<unsigned char> copy(kArrays * kEach);
        for (std::size_t i = 0; i < kArrays; ++i) {
            if (plain) CHECK(cudaMemcpy(copy.data() + i * kEach, at + i * kEach, kEach, cudaMemcpyDeviceToHost));
        }
        Checksum sum;
        sum.add(plain ? copy.data() : at, copy.size());
        return sum.value();
    };
    const File file(20 * kMiB), out;
    result("read", read(file, at + 100, 4 * kEach));
    say("offset %ld data %llx\n", file.offset(), sum());
    result("pread", pread(file, at + kEach - 5000, 10000, 3));
    result("write", write(out, at + 5, 4 * kEach));
    result("pwrite", pwrite(out, at + 2 * kEach - 1, 2, 10));
    iovec parts[] = {{at + 7, 2 * kEach}, {at + 3 * kEach, kEach + 9}};
    result("readv", readv(file, parts, 2));
    result("writev", writev(out, parts, 2));
    FILE* const stream = fdopen(dup(file), "r+");
    std::rewind(stream);
    result("fread", static_cast<long>(std::fread(at + kEach / 2, 1000, 4 * kEach / 1000, stream)));
    std::fseek(stream, 0, SEEK_END);
    result("fwrite", static_cast<long>(std::fwrite(at + kEach / 2, 1001, 4 * kEach / 1001, stream)));
    std::fclose(stream);
    const Pair pair(SOCK_STREAM);
    result("send", send(pair.ends[0], at + kEach - 3000, 6000, 0));
    result("recv", recv(pair.ends[1], at + 3 * kEach - 1000, 9000, 0));
    say("file %llx out %llx data %llx\n", file.sum(), out.sum(), sum());
    for (unsigned char* one : all) CHECK(cudaFree(one));
}

void direct(int, char**) {
    const File file(3 * kMiB + 100, O_RDWR | O_DIRECT);
    if (file < 0) return;  // not on this file system
    const Memory data(8 * kMiB);
    // Behind the last byte, and where it fails, the kernel may leave anything.
    result("to the end", read(file, data.at(), 4 * kMiB));
    say("offset %ld data %llx\n", file.offset(), data.sum(3 * kMiB + 100));
    result("pread to the end", pread(file, data.at(), 4 * kMiB, 4096));
    say("data %llx\n", data.sum(3 * kMiB - 4096 + 100));
    result("odd length", pread(file, data.at(5 * kMiB), 2 * kMiB + 5, 0));
    result("odd offset", pread(file, data.at(5 * kMiB), 2 * kMiB, 5));
    lseek(file, 0, SEEK_SET);
    result("write", write(file, data.at(), 3 * kMiB - 4096));
    result("odd write", write(file, data.at(), 3 * kMiB + 5));
    result("read again", pread(file, data.at(kMiB), 2 * kMiB, 0));
    say("offset %ld data %llx\n", file.offset(), data.sum(3 * kMiB - 4096));
}

// Threads with hardly any stack.
void small_stacks(int, char**) {
    const File file(100000);
    const Memory data(100000);
    data.change(6);
    for (const bool array : {false, true}) {
        std::vector<char> ordinary(100000);
        char* const at = array ? reinterpret_cast<char*>(data.at()) : ordinary.data();
        auto work = [&] {
            iovec part{at + 5, 1000};
            result("readv", readv(file, &part, 1));
            result("writev", writev(file, &part, 1));
            result("pread", pread(file, at, 50000, 0));
            result("pwrite", pwrite(file, at, 50000, 0));
        };
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, array ? 32768 : PTHREAD_STACK_MIN);
        pthread_t thread;
        pthread_create(
            &thread, &attributes,
            [](void* f) -> void* {
                (*static_cast<decltype(work)*>(f))();
                return nullptr;
            },
            &work);
        pthread_join(thread, nullptr);
    }
    say("file %llx data %llx\n", file.sum(), data.sum());
}

void long_vectors(int, char**) {
    const File file(kMiB);
    const Memory data(2 * kMiB);
    data.change(7);
    std::vector<char> ordinary(kMiB);
    std::vector<iovec> parts;
    for (std::size_t i = 0; i < IOV_MAX; ++i) {
        parts.push_back(i % 3 == 0 ? iovec{ordinary.data() + i * 700, 650} : iovec{data.at(i * 1500), 1 + i % 1000});
    }
    result("readv", readv(file, parts.data(), IOV_MAX));
    data.change(8);
    result("writev", writev(file, parts.data(), IOV_MAX));
    Checksum sum;
    sum.add(ordinary.data(), ordinary.size());
    say("file %llx data %llx ordinary %llx\n", file.sum(), data.sum(), static_cast<unsigned long long>(sum.value()));
}

constexpr Case cases[] = {
    {"wrong_addresses", wrong_addresses},
    {"behind_the_end", behind_the_end},
    {"behind_the_end_of_pipes", behind_the_end_of_pipes},
    {"side_by_side", side_by_side},
    {"direct", direct},
    {"small_stacks", small_stacks},
    {"long_vectors", long_vectors},
};

}  // namespace

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
