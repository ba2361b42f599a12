// SPDX-License-Identifier: MIT
// objects.cu for Words.java.
#include <jni.h>
#include <stdint.h>

uint32_t* objects_new(uint32_t count);
void objects_free(uint32_t* words);
void objects_add(uint32_t* words, uint32_t count, uint32_t value);
void objects_fill(uint32_t* words, uint32_t first, uint32_t count, int byte);
uint32_t objects_round(uint32_t* words, uint32_t count, uint32_t seed);
void objects_crash(void);

#define UNUSED __attribute__((unused))
#define JAVA(type, name, ...) JNIEXPORT type JNICALL Java_Words_##name(UNUSED JNIEnv* env, UNUSED jclass own, ##__VA_ARGS__)
static uint32_t* at(jlong words) { return (uint32_t*)(intptr_t)words; }

JAVA(jlong, make, jint count) { return (jlong)(intptr_t)objects_new((uint32_t)count); }
JAVA(void, free, jlong words) { objects_free(at(words)); }
JAVA(jobject, bytes, jlong words, jint count) { return (*env)->NewDirectByteBuffer(env, at(words), (jlong)count * 4); }
JAVA(void, add, jlong words, jint count, jint value) { objects_add(at(words), (uint32_t)count, (uint32_t)value); }
JAVA(void, fill, jlong words, jint first, jint count, jint byte) {
    objects_fill(at(words), (uint32_t)first, (uint32_t)count, byte);
}
JAVA(jint, round, jlong words, jint count, jint seed) {
    return (jint)objects_round(at(words), (uint32_t)count, (uint32_t)seed);
}
JAVA(void, crash) { objects_crash(); }
