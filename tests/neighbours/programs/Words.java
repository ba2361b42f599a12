// SPDX-License-Identifier: MIT
// `java -Xmx64m Words LIBRARY FILE [crash]`: objects (objects.cu) touched by compiled code, by native code and by file
// reads, in the main thread and in others, while null pointers are caught, stacks overflow, and garbage is collected:
// the virtual machine uses SIGSEGV for the first two and to stop compiled code for the third.
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicInteger;

class Words {
    static native long make(int count);
    static native void free(long words);
    static native ByteBuffer bytes(long words, int count);
    static native void add(long words, int count, int value);
    static native void fill(long words, int first, int count, int value);
    static native int round(long words, int count, int seed);
    static native void crash();

    static final int COUNT = 1 << 17;
    static String file;
    int field;
    static int depth;

    static int nulls(int tries) {
        int caught = 0;
        for (int i = 0; i < tries; ++i) {
            Words words = i % 3 == 0 ? null : new Words();
            try {
                words.field = i;
            } catch (NullPointerException expected) {
                ++caught;
            }
        }
        return caught;
    }

    static void deeper() {
        ++depth;
        deeper();
    }
    static boolean overflows() {
        try {
            deeper();
            return false;
        } catch (StackOverflowError expected) {
            return depth > 0;
        }
    }

    static int use(int seed) throws Exception {
        int wrong = 0;
        long words = make(COUNT);
        IntBuffer view = bytes(words, COUNT).order(ByteOrder.nativeOrder()).asIntBuffer();
        byte[][] garbage = new byte[16][];
        for (int round = 0; round < 4; ++round) {
            for (int i = 0; i < COUNT; ++i) view.put(i, i * seed);
            add(words, COUNT, round);
            for (int i = 0; i < COUNT; ++i) {
                if (view.get(i) != i * seed + round) ++wrong;
                if (i % 512 == 0) garbage[i / 512 % 16] = new byte[1 << 16];
                if (i % 1024 == 0) wrong += nulls(30) == 10 ? 0 : 1;
            }
            fill(words, 0, COUNT / 2, round);
            wrong += view.get(COUNT / 2 - 1) != round * 0x01010101 ? 1 : 0;
            wrong += overflows() ? 0 : 1;
            wrong += view.get(0) != round * 0x01010101 ? 1 : 0;
            wrong += round(words, COUNT, seed);
        }
        try (FileChannel in = FileChannel.open(Path.of(file), StandardOpenOption.READ)) {
            ByteBuffer bytes = bytes(words, COUNT);
            bytes.position(4096 * 3).limit(4096 * 3 + (int)in.size());
            add(words, COUNT, 1);
            while (bytes.hasRemaining() && in.read(bytes) > 0) {}
            wrong += bytes.position() == bytes.limit() ? 0 : 1;
            add(words, COUNT, 1);
            for (int i = 0; i < (int)in.size() / 4; ++i) wrong += view.get(4096 / 4 * 3 + i) != i + 1 ? 1 : 0;
        }
        free(words);
        return wrong;
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        file = arguments[1];
        if (arguments.length > 2) {
            long words = make(COUNT);
            System.out.println(round(words, COUNT, 3) + " wrong, crashes");
            crash();
        }
        System.out.println(nulls(200000) + " null pointers, overflow " + overflows());
        System.out.println(use(3) + " wrong");
        AtomicInteger wrong = new AtomicInteger();
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; ++i) {
            final int seed = 5 + 2 * i;
            threads[i] = new Thread(() -> {
                try {
                    wrong.addAndGet(use(seed));
                } catch (Exception e) {
                    e.printStackTrace();
                    wrong.addAndGet(1000000);
                }
            });
            threads[i].start();
        }
        for (int i = 0; i < 20; ++i) {
            System.gc();
            nulls(2000);
        }
        for (Thread thread : threads) thread.join();
        System.out.println(wrong + " wrong in threads");
        System.out.println(nulls(200000) + " null pointers, overflow " + overflows());
    }
}
