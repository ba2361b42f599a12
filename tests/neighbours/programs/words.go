// SPDX-License-Identifier: MIT
// `words FILE [crash|nil]`: objects (objects.cu) touched by goroutines and by C, while nil dereferences are recovered (the
// runtime has them from SIGSEGV), goroutines are preempted by signals, and garbage is collected.
package main

/*
#include <stdint.h>
uint32_t* objects_new(uint32_t count);
void objects_free(uint32_t* words);
void objects_add(uint32_t* words, uint32_t count, uint32_t value);
void objects_fill(uint32_t* words, uint32_t first, uint32_t count, int byte);
uint32_t objects_round(uint32_t* words, uint32_t count, uint32_t seed);
void objects_crash(void);
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"
)

const count = 1 << 17

type node struct {
	next *node
	data [64]int
}

var keep [16][]byte

//go:noinline
func dereference(at *node) int { return at.data[3] }

func nils(tries int) (caught int) {
	for i := 0; i < tries; i++ {
		func() {
			defer func() {
				if recover() != nil {
					caught++
				}
			}()
			dereference(nil)
		}()
	}
	return
}

func use(seed uint32) (wrong uint32) {
	words := C.objects_new(count)
	view := unsafe.Slice((*uint32)(unsafe.Pointer(words)), count)
	other := make([]uint32, count)
	for round := uint32(0); round < 4; round++ {
		for i := range view {
			view[i] = uint32(i) * seed
		}
		C.objects_add(words, count, C.uint32_t(round))
		for i := range view {
			if view[i] != uint32(i)*seed+round {
				wrong++
			}
			if i%1024 == 0 {
				keep[seed%16] = make([]byte, 1<<16)
				wrong += uint32(10 - nils(10))
			}
		}
		C.objects_fill(words, 0, count/2, C.int(round))
		copy(other, view)
		if other[count/2-1] != round*0x01010101 || other[count/2] != count/2*seed+round {
			wrong++
		}
		wrong += uint32(C.objects_round(words, count, C.uint32_t(seed)))
	}
	// A raw system call cannot read into an object: into memory of Go's own, and from there.
	bytes, _ := os.ReadFile(os.Args[1])
	C.objects_add(words, count, 1)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(words)), 4*count)[12288:], bytes)
	C.objects_add(words, count, 1)
	for i := 0; i < len(bytes)/4; i++ {
		if view[3072+i] != uint32(i)+1 {
			wrong++
		}
	}
	C.objects_free(words)
	return
}

func main() {
	if len(os.Args) > 2 {
		words := C.objects_new(count)
		fmt.Println(C.objects_round(words, count, 3), "wrong, crashes")
		if os.Args[2] == "nil" {
			dereference(nil)
		}
		C.objects_crash()
	}
	debug.SetGCPercent(20)
	fmt.Println(nils(1000), "nils")
	fmt.Println(use(3), "wrong")
	var wait sync.WaitGroup
	var wrong, busy uint32
	stop := make(chan bool)
	for i := 0; i < 2; i++ { // never call: only preemption signals stop them
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for j := 0; j < 10000000; j++ {
					busy++
				}
			}
		}()
	}
	for i := 0; i < 4; i++ {
		wait.Add(1)
		go func(seed uint32) {
			defer wait.Done()
			atomic.AddUint32(&wrong, use(seed))
		}(uint32(5 + 2*i))
	}
	for i := 0; i < 20; i++ {
		runtime.GC()
		nils(100)
	}
	wait.Wait()
	close(stop)
	fmt.Println(wrong, "wrong in threads")
	said, err := exec.Command("echo", "from a child").Output()
	fmt.Print(string(said))
	fmt.Println(err, nils(1000), "nils")
}
