// SPDX-License-Identifier: MIT
// stdio with memory that kernels use. Cases one by one; see io.h.
#include <atomic>
#include <cstdlib>
#include <fstream>

#include "asleep.h"
#include "io.h"

namespace {

constexpr std::size_t kMiB = 1 << 20;

class Stream {
public:
    explicit Stream(std::size_t bytes = 0) : file_(bytes), stream_(fdopen(dup(file_), "r+")) {}
    ~Stream() { std::fclose(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    operator FILE*() const { return stream_; }
    unsigned long long sum() const {
        std::fflush(stream_);
        return file_.sum();
    }

private:
    const File file_;
    FILE* const stream_;
};

void state(FILE* stream) {
    say("at %ld eof %d error %d\n", std::ftell(stream), std::feof(stream) != 0, std::ferror(stream) != 0);
}

void items(int, char**) {
    const Stream stream(5 * kMiB + 77);
    const Memory data(6 * kMiB);
    data.change(1);
    result("one", static_cast<long>(std::fread(data.at(3), 1, 1, stream)));
    result("small", static_cast<long>(std::fread(data.at(9), 12, 30, stream)));
    result("of a buffer's size", static_cast<long>(std::fread(data.at(4096), 4096, 3, stream)));
    state(stream);
    data.change(2);
    result("large", static_cast<long>(std::fread(data.at(777), 1000, 3000, stream)));
    result("none", static_cast<long>(std::fread(data.at(), 0, 10, stream)));
    result("of none", static_cast<long>(std::fread(data.at(), 10, 0, stream)));
    state(stream);
    say("data %llx\n", data.sum());
    result("more than there is", static_cast<long>(std::fread(data.at(1), 1024, 6 * 1024 - 1, stream)));
    state(stream);
    result("at the end", static_cast<long>(std::fread(data.at(), 1, 10, stream)));
    say("data %llx\n", data.sum());
}

void pieces(int, char**) {
    const Stream in(3 * kMiB), out;
    const Memory data(3 * kMiB);
    data.change(3);
    for (std::size_t at = 0; at < data.bytes(); at += 65536) {
        if (std::fread(data.at(at), 65536, 1, in) != 1) say("short at %zu\n", at);
    }
    data.change(4);
    for (std::size_t at = 0; at < data.bytes(); at += 65536) {
        if (std::fwrite(data.at(at), 1, 65536, out) != 65536) say("short at %zu\n", at);
    }
    say("file %llx data %llx\n", out.sum(), data.sum());
}

void writes(int, char**) {
    const Stream stream;
    const Memory data(3 * kMiB);
    data.change(5);
    result("one", static_cast<long>(std::fwrite(data.at(5), 1, 1, stream)));
    std::fputs("text between", stream);
    result("large", static_cast<long>(std::fwrite(data.at(5), 1001, 2500, stream)));
    result("none", static_cast<long>(std::fwrite(data.at(), 0, 5, stream)));
    result("unlocked", static_cast<long>(fwrite_unlocked(data.at(100), 10, 100, stream)));
    say("file %llx\n", stream.sum());
    std::rewind(stream);
    result("unlocked", static_cast<long>(fread_unlocked(data.at(50), 10, 100000, stream)));
    std::ungetc('x', stream);
    result("after ungetc", static_cast<long>(std::fread(data.at(kMiB + 5), 100, 7000, stream)));
    say("data %llx\n", data.sum());
}

void failures(int, char**) {
    const Memory data(2 * kMiB);
    data.change(6);
    FILE* const full = std::fopen("/dev/full", "r+");
    result("write to a full device", static_cast<long>(std::fwrite(data.at(), 1, 100000, full)));
    result("flush", std::fflush(full));
    state(full);
    std::clearerr(full);
    std::fclose(full);
    FILE* const folder = std::fopen(".", "r");
    result("read a directory", static_cast<long>(std::fread(data.at(), 1000, 2000, folder)));
    state(folder);
    std::fclose(folder);
    FILE* const empty = std::fopen("/dev/null", "r");
    result("read nothing", static_cast<long>(std::fread(data.at(), 1000, 2000, empty)));
    state(empty);
    std::fclose(empty);
    say("data %llx\n", data.sum());
}

// Flags that an earlier call left do not keep glibc from asking the file again.
void with_flags(int, char**) {
    const Memory data(200000);
    data.change(14);
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) return;
    FILE* const stream = fdopen(ends[0], "r");
    const std::string text(30000, 'y');
    result("nothing there", static_cast<long>(std::fread(data.at(), 1, 50000, stream)));
    if (write(ends[1], text.data(), text.size()) != 30000) return;
    result("after an error", static_cast<long>(std::fread(data.at(5), 1, 50000, stream)));
    if (write(ends[1], text.data(), 100) != 100) return;
    result("after an error, small", static_cast<long>(fread_unlocked(data.at(60000), 1, 50, stream)));
    say("eof %d error %d\n", std::feof(stream) != 0, std::ferror(stream) != 0);
    std::fclose(stream);
    close(ends[1]);
    const File file(100000);
    FILE* const growing = fdopen(dup(file), "r");
    result("to the end", static_cast<long>(std::fread(data.at(), 1, 150000, growing)));
    if (pwrite(file, text.data(), text.size(), 100000) != 30000) return;
    result("at the old end", static_cast<long>(std::fread(data.at(77), 1, 20000, growing)));
    result("small", static_cast<long>(std::fread(data.at(150000), 1, 50, growing)));
    state(growing);
    std::fclose(growing);
    say("data %llx\n", data.sum());
}

void buffers(int, char**) {
    const Memory buffer(65536), data(100000);
    data.change(7);
    {
        const Stream stream(200000);
        result("setvbuf", std::setvbuf(stream, reinterpret_cast<char*>(buffer.at()), _IOFBF, buffer.bytes()));
        result("read", static_cast<long>(std::fread(data.at(), 1, 100, stream)));
        result("read", static_cast<long>(std::fread(data.at(100), 1, 90000, stream)));
        std::rewind(stream);
        for (int i = 0; i < 30000; ++i) std::fprintf(stream, "%d\n", i);
        say("file %llx\n", stream.sum());
    }
    {
        const Stream stream(200000);
        setbuffer(stream, reinterpret_cast<char*>(buffer.at(5)), 5000);
        int sum = 0;
        for (int i = 0; i < 100000; ++i) sum += std::getc(stream);
        say("sum %d\n", sum);
    }
    {
        const Stream stream;
        result("line by line", std::setvbuf(stream, reinterpret_cast<char*>(buffer.at()), _IOLBF, 4096));
        std::fprintf(stream, "a line\nand another");
        say("file %llx\n", stream.sum());
    }
    const Stream unbuffered(10000);
    std::setbuf(unbuffered, nullptr);
    result("unbuffered", static_cast<long>(std::fread(data.at(1), 1, 9999, unbuffered)));
    say("data %llx\n", data.sum());
}

// What goes through the stream's buffer.
void text(int, char**) {
    const Memory data(200000);
    auto* const letters = reinterpret_cast<char*>(data.at());
    data.change(8);
    const Stream stream;
    for (int i = 0; i < 20000; ++i) std::fprintf(stream, "line %d of some\n", i);
    std::rewind(stream);
    for (int i = 0; i < 1000; ++i) {
        if (std::fgets(letters + i * 100, 100, stream) == nullptr) say("no line %d\n", i);
    }
    data.change(9);
    int found = 0;
    for (int i = 0; i < 1000; ++i)
        found += std::fscanf(stream, "line %d of some\n", reinterpret_cast<int*>(letters) + i);
    say("found %d data %llx\n", found, data.sum());
    std::memset(letters, 'q', 150000);
    letters[150000] = 0;
    data.change(0);
    std::memset(letters, 'r', 50000);
    for (int i = 50000; i < 150000; ++i)
        letters[i] = static_cast<char>('a' + static_cast<unsigned char>(letters[i]) % 26);
    letters[150000] = 0;
    const Stream out;
    result("fputs", std::fputs(letters, out));
    result("puts", std::puts(letters + 149000));
    result("fprintf", std::fprintf(out, "%s and %.*s\n", letters + 149000, 70000, letters));
    say("file %llx\n", out.sum());
    std::rewind(out);
    std::size_t room = 190000;
    char* line = static_cast<char*>(std::malloc(room));
    result("getline", getline(&line, &room, out));
    std::free(line);
}

void shared(int, char**) {
    const Stream stream(4 * kMiB);
    std::size_t total = 0;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    auto reader = [&] {
        const Memory data(1500000);
        std::size_t bytes = 0;
        for (std::size_t n; (n = std::fread(data.at(), 1, data.bytes(), stream)) > 0;) bytes += n;
        pthread_mutex_lock(&mutex);
        total += bytes;
        pthread_mutex_unlock(&mutex);
    };
    pthread_t threads[3];
    for (pthread_t& thread : threads) thread = start(reader);
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    say("%zu bytes\n", total);
}

// A thread that waits in fread() is cancelled, and leaves the stream to others.
// The launches take blocks away while a call fills them.
void beside_launches(int, char**) {
    const File file(9 * kMiB + 777);
    const Memory data(10 * kMiB);
    data.change(31);
    CHECK(cudaDeviceSynchronize());
    FILE* stream = fdopen(dup(file), "r");
    volatile bool over = false;
    unsigned* other = nullptr;
    CHECK(cudaMalloc(&other, 4096));
    auto launcher = [&] {
        cudaStream_t own;
        CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        while (!over) {
            advance<><<<8, 128, 0, own>>>(other, 1024, 1);
            CHECK(cudaStreamSynchronize(own));
        }
        CHECK(cudaStreamDestroy(own));
    };
    const auto thread = start(launcher);
    for (unsigned round = 0; round < 6; ++round) {
        std::rewind(stream);
        std::size_t sum = 0;
        for (std::size_t at = round * 100;; at += 65536) {
            const auto got = std::fread(data.at(at), 1, 65536, stream);
            sum += got;
            if (got < 65536) break;
        }
        say("%zu ", sum);
        state(stream);
    }
    over = true;
    pthread_join(thread, nullptr);
    std::fclose(stream);
    say("data %llx\n", data.sum());
    CHECK(cudaFree(other));
}

void cancelled(int, char**) {
    int ends[2];
    if (pipe(ends) != 0) return;
    FILE* const stream = fdopen(ends[0], "r");
    const Memory data(100000);
    data.change(10);
    // A thread that is cancelled while read() returns loses what was read, without libhpe, too.
    std::atomic<pid_t> waiting{0};
    auto reader = [&] {
        for (;;) {
            if (std::fread(data.at(3), 9, 1, stream) != 1) std::exit(92);
            waiting = gettid();
        }
    };
    const auto thread = start(reader);
    if (write(ends[1], "something", 9) != 9) return;
    wait_until_it_waits(waiting);
    pthread_cancel(thread);
    void* how = nullptr;
    pthread_join(thread, &how);
    close(ends[1]);
    result("then", static_cast<long>(std::fread(data.at(), 1, 10, stream)));
    std::fclose(stream);
    say("cancelled %d data %llx\n", how == PTHREAD_CANCELED, data.sum());
}

void of_the_language(int, char**) {
    char path[] = "io-XXXXXX";
    close(mkstemp(path));
    const Memory data(3 * kMiB);
    data.change(11);
    {
        std::ofstream out(path, std::ios::binary);
        out.write(reinterpret_cast<const char*>(data.at(5)), 2 * kMiB);
        out << "text";
        out.write(reinterpret_cast<const char*>(data.at(100)), 10);
        say("good %d at %ld\n", out.good(), static_cast<long>(out.tellp()));
    }
    data.change(12);
    std::ifstream in(path, std::ios::binary);
    in.read(reinterpret_cast<char*>(data.at(77)), kMiB);
    say("good %d count %ld\n", in.good(), static_cast<long>(in.gcount()));
    data.change(13);
    in.read(reinterpret_cast<char*>(data.at(kMiB)), 2 * kMiB);
    say("eof %d count %ld data %llx\n", in.eof(), static_cast<long>(in.gcount()), data.sum());
    unlink(path);
}

constexpr Case cases[] = {
    {"items", items},
    {"with_flags", with_flags},
    {"pieces", pieces},
    {"writes", writes},
    {"failures", failures},
    {"buffers", buffers},
    {"text", text},
    {"shared", shared},
    {"of_the_language", of_the_language},
    {"cancelled", cancelled},
    {"beside_launches", beside_launches},
};

}  // namespace

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
