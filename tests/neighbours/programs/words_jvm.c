// SPDX-License-Identifier: MIT
// `words_jvm LIBJVM CLASSPATH ARGUMENT...`: a process that has used objects already makes a Java virtual machine and has
// it run Words.main.
#include <dlfcn.h>
#include <jni.h>
#include <stdint.h>
#include <stdio.h>

uint32_t* objects_new(uint32_t count);
uint32_t objects_round(uint32_t* words, uint32_t count, uint32_t seed);

int main(int count, char** arguments) {
    enum { kWords = 1 << 17 };
    uint32_t* const words = objects_new(kWords);
    printf("%u wrong before\n", objects_round(words, kWords, 3));
    fflush(stdout);
    char path[4096];
    snprintf(path, sizeof path, "-Djava.class.path=%s", arguments[2]);
    JavaVMOption options[] = {{"-Xmx64m", NULL}, {path, NULL}, {"-XX:-CreateCoredumpOnCrash", NULL},
                              {"-XX:ErrorFile=/dev/null", NULL}};
    JavaVMInitArgs how = {JNI_VERSION_10, sizeof options / sizeof *options, options, 0};
    jint (*create)(JavaVM**, void**, void*) = dlsym(dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL), "JNI_CreateJavaVM");
    JavaVM* machine;
    JNIEnv* env;
    if (create == NULL || create(&machine, (void**)&env, &how) != JNI_OK) return 9;
    const jclass class = (*env)->FindClass(env, "Words");
    const jobjectArray given =
        (*env)->NewObjectArray(env, count - 3, (*env)->FindClass(env, "java/lang/String"), NULL);
    for (int i = 3; i < count; ++i) {
        (*env)->SetObjectArrayElement(env, given, i - 3, (*env)->NewStringUTF(env, arguments[i]));
    }
    (*env)->CallStaticVoidMethod(env, class, (*env)->GetStaticMethodID(env, class, "main", "([Ljava/lang/String;)V"),
                                 given);
    if ((*env)->ExceptionCheck(env)) (*env)->ExceptionDescribe(env);
    (*machine)->DestroyJavaVM(machine);
    printf("%u wrong after\n", objects_round(words, kWords, 3));
    return 0;
}
