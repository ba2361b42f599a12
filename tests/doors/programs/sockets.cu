// SPDX-License-Identifier: MIT
// Sockets with memory that kernels use. Cases one by one; see io.h.
#include <limits.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "io.h"

namespace {

constexpr std::size_t kMiB = 1 << 20;

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

void stream(int, char**) {
    const Pair pair(SOCK_STREAM);
    const Memory out(2 * kMiB), in(2 * kMiB);
    out.change(1);
    auto sender = [&] {
        for (std::size_t sent = 0; sent < out.bytes();) {
            const ssize_t n = send(pair.ends[0], out.at(sent), out.bytes() - sent, 0);
            if (n <= 0) std::exit(97);
            sent += static_cast<std::size_t>(n);
        }
    };
    const auto thread = start(sender);
    in.change(2);
    result("all of it", recv(pair.ends[1], in.at(), in.bytes(), MSG_WAITALL));
    pthread_join(thread, nullptr);
    say("equal: %d\n", in.sum() == out.sum());
    result("nothing there", recv(pair.ends[1], in.at(), 10, MSG_DONTWAIT));
    shutdown(pair.ends[0], SHUT_WR);
    result("the end", recv(pair.ends[1], in.at(), in.bytes(), 0));
}

void datagrams(int, char**) {
    const Pair pair(SOCK_DGRAM);
    const Memory data(500000);
    data.change(3);
    result("send", send(pair.ends[0], data.at(1), 60000, 0));
    result("send empty", send(pair.ends[0], data.at(1), 0, 0));
    result("send", sendto(pair.ends[0], data.at(70000), 5000, 0, nullptr, 0));
    data.change(4);
    result("peek", recv(pair.ends[1], data.at(200000), 100, MSG_PEEK));
    result("its length", recv(pair.ends[1], data.at(200000), 100, MSG_PEEK | MSG_TRUNC));
    result("whole", recv(pair.ends[1], data.at(200001), 100000, 0));
    result("empty", recv(pair.ends[1], data.at(), 100, 0));
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    result("cut", recvfrom(pair.ends[1], data.at(400000), 1000, 0, reinterpret_cast<sockaddr*>(&from), &length));
    say("data %llx\n", data.sum());
    result("too long", send(pair.ends[0], data.at(), 500000, MSG_DONTWAIT) < 0 ? 0 : 1);
    result("no socket", send(0, data.at(), 10, 0) < 0 && errno == ENOTSOCK ? 0 : 1);
}

void by_address(int, char**) {
    const int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(receiver, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        getsockname(receiver, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        std::exit(96);
    }
    const Memory data(100000);
    data.change(5);
    result("sendto",
           sendto(sender, data.at(10), 30000, 0, reinterpret_cast<const sockaddr*>(&address), sizeof address));
    sockaddr_in from{};
    length = sizeof from;
    result("recvfrom", recvfrom(receiver, data.at(50001), 40000, 0, reinterpret_cast<sockaddr*>(&from), &length));
    say("family %d length %u data %llx\n", from.sin_family == AF_INET, length, data.sum());
    close(receiver);
    close(sender);
}

// With MSG_TRUNC TCP drops bytes, says how many, and leaves the memory as it is.
void dropped(int, char**) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0), sender = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
        connect(sender, reinterpret_cast<sockaddr*>(&address), length) != 0) {
        std::exit(95);
    }
    const int receiver = accept(listener, nullptr, nullptr);
    const Memory data(100000);
    const std::string text(80000, 'x');
    std::size_t sent = 0;
    while (sent < text.size()) sent += static_cast<std::size_t>(write(sender, &text[sent], text.size() - sent));
    result("recv", recv(receiver, data.at(), 30000, MSG_WAITALL));
    data.change(10);
    result("drop", recv(receiver, data.at(10), 10000, MSG_TRUNC | MSG_WAITALL));
    say("data %llx\n", data.sum());
    result("drop", recvfrom(receiver, data.at(10), 10000, MSG_TRUNC | MSG_WAITALL, nullptr, nullptr));
    iovec parts[] = {{data.at(100), 5000}, {data.at(50000), 5000}};
    mmsghdr list[2] = {};
    for (mmsghdr& m : list) {
        m.msg_hdr.msg_iov = parts;
        m.msg_hdr.msg_iovlen = 2;
    }
    result("drop", recvmsg(receiver, &list[0].msg_hdr, MSG_TRUNC | MSG_WAITALL));
    result("drop", recvmmsg(receiver, list, 1, MSG_TRUNC | MSG_WAITALL, nullptr));
    say("data %llx\n", data.sum());
    result("the rest", recv(receiver, data.at(), 10000, MSG_WAITALL));
    say("data %llx\n", data.sum());
    for (const int s : {listener, sender, receiver}) close(s);
}

// The kernel cuts a length that reaches out of the address space, if it is that of one range.
void of_any_length(int, char**) {
    const Memory data(kMiB);
    volatile std::size_t lengths[] = {SIZE_MAX, SSIZE_MAX, std::size_t{1} << 46};
    for (const std::size_t length : lengths) {
        const Pair pair(SOCK_STREAM);
        const auto more = [&] {
            data.change(13);
            return send(pair.ends[0], "abcdef", 6, 0);
        };
        more();
        result("recv", recv(pair.ends[1], data.at(5000), length, MSG_DONTWAIT));
        more();
        result("recvfrom", recvfrom(pair.ends[1], data.at(6000), length, MSG_DONTWAIT, nullptr, nullptr));
        more();
        result("recv", recv(pair.ends[1], data.at(7000), length, MSG_DONTWAIT | MSG_TRUNC));
        // As many bytes as fit.
        data.change(14);
        result("send", send(pair.ends[0], data.at(8000), length, MSG_DONTWAIT));
        data.change(15);
        result("sendto", sendto(pair.ends[1], data.at(8000), length, MSG_DONTWAIT, nullptr, 0));
        say("data %llx\n", data.sum());
    }
    for (const std::size_t length : lengths) {
        const Pair pair(SOCK_STREAM);
        static char ordinary[10];  // far from the end of the address space
        iovec part{ordinary, length};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        send(pair.ends[0], "abcdef", 6, 0);
        // Not before Linux 6.4.
        if (recvmsg(pair.ends[1], &message, MSG_DONTWAIT) < 0) continue;
        send(pair.ends[0], "abcdefghijkl", 12, 0);
        part.iov_base = data.at(9000);
        data.change(16);
        const ssize_t got = recvmsg(pair.ends[1], &message, MSG_DONTWAIT);
        data.change(17);
        if (got != 12 || sendmsg(pair.ends[0], &message, MSG_DONTWAIT) <= 0) std::exit(94);
    }
    say("data %llx\n", data.sum());
}

// A descriptor's number is sent from an array that kernels use, and received into one.
void control_messages(int, char**) {
    const Pair pair(SOCK_DGRAM);
    const Memory data(kMiB), other(100);
    const int wanted = 1;
    int ends[2];
    if (pipe(ends) != 0 || setsockopt(pair.ends[1], SOL_SOCKET, SO_PASSCRED, &wanted, sizeof wanted) != 0) return;
    data.change(18);
    iovec part{data.at(50), 1000};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = data.at(65536);
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr* control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &ends[1], sizeof(int));
    other.change(1);  // a launch takes all blocks from the host
    result("sent", sendmsg(pair.ends[0], &message, 0));
    data.change(19);
    message.msg_control = data.at(131072);
    message.msg_controllen = 256;
    char ordinary[1000];
    part.iov_base = ordinary;
    result("received", recvmsg(pair.ends[1], &message, 0));
    say("flags %x, %zu bytes of control\n", message.msg_flags, message.msg_controllen);
    int got = -1;
    for (control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
        say("level %d type %d length %zu\n", control->cmsg_level, control->cmsg_type,
            static_cast<std::size_t>(control->cmsg_len));
        if (control->cmsg_type == SCM_RIGHTS) std::memcpy(&got, CMSG_DATA(control), sizeof got);
    }
    if (got >= 0) result("written", write(got, "x", 1));
    result("refused", sendmsg(pair.ends[0], (message.msg_controllen = 2 * kMiB, &message), 0));
}

// With a descriptor beside the bytes.
void messages(int, char**) {
    const Pair pair(SOCK_STREAM);
    const Memory a(100000), b(100000);
    a.change(6);
    char ordinary[100] = "ordinary";
    iovec parts[] = {{a.at(10), 50000}, {ordinary, sizeof ordinary}, {b.at(4095), 3000}};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 3;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int standard_output = STDOUT_FILENO;
    std::memcpy(CMSG_DATA(header), &standard_output, sizeof(int));
    result("sendmsg", sendmsg(pair.ends[0], &message, 0));
    b.change(7);
    std::swap(parts[0], parts[2]);
    parts[2].iov_base = a.at(40000);
    std::memset(control, 0, sizeof control);
    result("recvmsg", recvmsg(pair.ends[1], &message, 0));
    int passed = -1;
    std::memcpy(&passed, CMSG_DATA(header), sizeof(int));
    say("flags %d control %zu descriptor %d\n", message.msg_flags & ~MSG_CMSG_CLOEXEC, message.msg_controllen,
        passed > 2);
    result("nothing there", recvmsg(pair.ends[1], &message, MSG_DONTWAIT));
    say("a %llx b %llx ordinary %.8s\n", a.sum(), b.sum(), ordinary);
}

void several_messages(int, char**) {
    const Pair pair(SOCK_DGRAM);
    const Memory data(200000);
    data.change(8);
    iovec parts[4];
    mmsghdr list[4] = {};
    for (std::size_t i = 0; i < 4; ++i) {
        parts[i] = {data.at(i * 10000 + 1), 5000 + i};
        list[i].msg_hdr.msg_iov = &parts[i];
        list[i].msg_hdr.msg_iovlen = 1;
    }
    result("sendmmsg", sendmmsg(pair.ends[0], list, 3, 0));
    for (const mmsghdr& m : list) say("%u\n", m.msg_len);
    data.change(9);
    for (std::size_t i = 0; i < 4; ++i) parts[i] = {data.at(100000 + i * 10000), 5001};
    timespec timeout{5, 0};
    result("recvmmsg", recvmmsg(pair.ends[1], list, 2, 0, &timeout));
    result("recvmmsg, one", recvmmsg(pair.ends[1], list + 2, 2, MSG_WAITFORONE, nullptr));
    for (const mmsghdr& m : list) say("%u %d\n", m.msg_len, m.msg_hdr.msg_flags);
    result("recvmmsg, none", recvmmsg(pair.ends[1], list, 2, MSG_DONTWAIT, nullptr));
    say("data %llx\n", data.sum());
}

// What ends the call after its first message is told by the next one.
void an_error_behind_a_message(int, char**) {
    const Pair pair(SOCK_DGRAM);
    const Memory data(100000);
    data.change(20);
    for (const char* text : {"one", "two", "three"}) send(pair.ends[0], text, 3, 0);
    iovec parts[] = {{data.at(10), 100}, {reinterpret_cast<void*>(8), 100}, {data.at(70000), 100}};
    mmsghdr list[3] = {};
    for (std::size_t i = 0; i < 3; ++i) {
        list[i].msg_hdr.msg_iov = &parts[i];
        list[i].msg_hdr.msg_iovlen = 1;
    }
    result("recvmmsg", recvmmsg(pair.ends[1], list, 3, MSG_DONTWAIT, nullptr));
    say("%u %u %u\n", list[0].msg_len, list[1].msg_len, list[2].msg_len);
    for (int i = 0; i < 3; ++i) result("recv", recv(pair.ends[1], data.at(50000), 100, MSG_DONTWAIT));
    // The first vector cannot be read; the second one cannot; a count that no vector has.
    for (const std::size_t bad : {0, 1}) {
        for (const char* text : {"one", "two"}) send(pair.ends[0], text, 3, 0);
        parts[1] = {data.at(60000), 100};
        list[0].msg_hdr.msg_iov = &parts[0];
        list[1].msg_hdr.msg_iov = &parts[1];
        list[bad].msg_hdr.msg_iov = reinterpret_cast<iovec*>(8);
        timespec timeout{3, 0};
        result("recvmmsg", recvmmsg(pair.ends[1], list, 3, MSG_DONTWAIT, &timeout));
        for (int i = 0; i < 2; ++i) result("recv", recv(pair.ends[1], data.at(50000), 100, MSG_DONTWAIT));
        list[bad].msg_hdr.msg_iov = &parts[bad];
    }
    list[0].msg_hdr.msg_iovlen = IOV_MAX + 1;
    result("recvmmsg", recvmmsg(pair.ends[1], list, 3, MSG_DONTWAIT, nullptr));
    timespec wrong{0, -1};
    result("recvmmsg", recvmmsg(pair.ends[1], list, 3, MSG_DONTWAIT, &wrong));
    say("data %llx\n", data.sum());
}

// More messages than the program has: the kernel sends what it can read.
void more_than_there_are(int, char**) {
    const Memory data(100);
    data.change(9);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) return;
    auto* const pages =
        static_cast<unsigned char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(pages + 4096, 4096, PROT_NONE);
    auto* const messages = reinterpret_cast<mmsghdr*>(pages + 4096) - 2;
    char text[] = "ordinary memory";
    iovec part{text, sizeof text};
    for (int i = 0; i < 2; ++i) {
        messages[i].msg_hdr.msg_iov = &part;
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    result("sendmmsg", sendmmsg(ends[0], messages, UINT_MAX, 0));
    say("data %llx\n", data.sum());
}

constexpr Case cases[] = {
    {"more_than_there_are", more_than_there_are},
    {"stream", stream},
    {"dropped", dropped},
    {"datagrams", datagrams},
    {"by_address", by_address},
    {"of_any_length", of_any_length},
    {"control_messages", control_messages},
    {"messages", messages},
    {"several_messages", several_messages},
    {"an_error_behind_a_message", an_error_behind_a_message},
};

}  // namespace

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
