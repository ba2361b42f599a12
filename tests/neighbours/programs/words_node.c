// SPDX-License-Identifier: MIT
// objects.cu for words.js: objects as array buffers.
#include <node_api.h>
#include <stdint.h>

enum { kWords = 1 << 17 };
uint32_t* objects_new(uint32_t count);
void objects_add(uint32_t* words, uint32_t count, uint32_t value);
uint32_t objects_round(uint32_t* words, uint32_t count, uint32_t seed);
void objects_crash(void);

static uint32_t* arguments(napi_env env, napi_callback_info info, uint32_t* number) {
    size_t count = 2, bytes = 0;
    napi_value given[2];
    void* words = NULL;
    napi_get_cb_info(env, info, &count, given, NULL, NULL);
    napi_get_arraybuffer_info(env, given[0], &words, &bytes);
    napi_get_value_uint32(env, given[1], number);
    return words;
}
static napi_value make(napi_env env, napi_callback_info info) {
    (void)info;
    napi_value buffer = NULL;
    napi_create_external_arraybuffer(env, objects_new(kWords), kWords * 4, NULL, NULL, &buffer);
    return buffer;
}
static napi_value add(napi_env env, napi_callback_info info) {
    uint32_t value = 0;
    uint32_t* const words = arguments(env, info, &value);
    objects_add(words, kWords, value);
    return NULL;
}
static napi_value round_of(napi_env env, napi_callback_info info) {
    uint32_t seed = 0;
    uint32_t* const words = arguments(env, info, &seed);
    napi_value wrong = NULL;
    napi_create_uint32(env, objects_round(words, kWords, seed), &wrong);
    return wrong;
}
static napi_value crash(napi_env env, napi_callback_info info) {
    (void)env;
    (void)info;
    objects_crash();
    return NULL;
}

NAPI_MODULE_INIT() {
    static const struct {
        const char* name;
        napi_callback call;
    } all[] = {{"make", make}, {"add", add}, {"round", round_of}, {"crash", crash}};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        napi_value function = NULL;
        napi_create_function(env, all[i].name, NAPI_AUTO_LENGTH, all[i].call, NULL, &function);
        napi_set_named_property(env, exports, all[i].name, function);
    }
    return exports;
}
