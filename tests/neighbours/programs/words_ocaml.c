// SPDX-License-Identifier: MIT
// objects.cu for words.ml.
#include <caml/bigarray.h>
#include <caml/memory.h>
#include <caml/mlvalues.h>
#include <caml/threads.h>
#include <stdint.h>

uint32_t* objects_new(uint32_t count);
void objects_free(uint32_t* words);
void objects_add(uint32_t* words, uint32_t count, uint32_t value);
uint32_t objects_round(uint32_t* words, uint32_t count, uint32_t seed);
void objects_crash(void);

static uint32_t* at(value words) { return Caml_ba_data_val(words); }

CAMLprim value words_new(value count) {
    return caml_ba_alloc_dims(CAML_BA_INT32 | CAML_BA_C_LAYOUT, 1, objects_new((uint32_t)Int_val(count)),
                              Long_val(count));
}
CAMLprim value words_free(value words) {
    objects_free(at(words));
    return Val_unit;
}
CAMLprim value words_add(value words, value count, value by) {
    objects_add(at(words), (uint32_t)Int_val(count), (uint32_t)Int_val(by));
    return Val_unit;
}
// Other threads of OCaml run meanwhile.
CAMLprim value words_round(value words, value count, value seed) {
    uint32_t* const data = at(words);
    caml_release_runtime_system();
    const uint32_t wrong = objects_round(data, (uint32_t)Int_val(count), (uint32_t)Int_val(seed));
    caml_acquire_runtime_system();
    return Val_int(wrong);
}
CAMLprim value words_crash(value unit) {
    objects_crash();
    return unit;
}
