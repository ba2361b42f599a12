// SPDX-License-Identifier: MIT
// objects.cu for words.R, as .C calls: everything by pointer, an address as a double.
#include <stdint.h>
#include <string.h>

uint32_t* objects_new(uint32_t count);
void objects_add(uint32_t* words, uint32_t count, uint32_t value);
uint32_t objects_round(uint32_t* words, uint32_t count, uint32_t seed);
void objects_crash(void);

static uint32_t* at(const double* words) { return (uint32_t*)(uintptr_t)*words; }
void words_new(const int* count, double* words) { *words = (double)(uintptr_t)objects_new((uint32_t)*count); }
void words_round(const double* words, const int* count, const int* seed, int* wrong) {
    *wrong = (int)objects_round(at(words), (uint32_t)*count, (uint32_t)*seed);
}
void words_fetch(const double* words, const int* count, int* values) { memcpy(values, at(words), (size_t)*count * 4); }
void words_store(const double* words, const int* count, const int* values) {
    memcpy(at(words), values, (size_t)*count * 4);
}
// Until the stack is full; touching the words on the way, or not.
static volatile int sum;
static int deeper(uint32_t* words, uint32_t count, volatile int* depth) {
    volatile int here[64] = {*depth + 1};
    if (words != NULL) words[(uint32_t)here[0] * 1024 % count] = (uint32_t)here[0];
    return deeper(words, count, here) + here[0];
}
void words_deep(const double* words, const int* count, const int* touches) {
    volatile int depth = 0;
    if (*touches != 0) objects_add(at(words), (uint32_t)*count, 1);
    sum = deeper(*touches != 0 ? at(words) : NULL, (uint32_t)*count, &depth);
}
void words_crash(void) { objects_crash(); }
