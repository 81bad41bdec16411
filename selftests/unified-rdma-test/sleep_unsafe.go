package main

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sleep is nanosleep(2) without a notice to the Go scheduler, which has no other goroutine for the
// thread. A signal may end it early.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
}

// punctual makes the timers of the calling thread as exact as the kernel can. back restores the
// slack; call it on the same thread.
func punctual() (back func(), err error) {
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	set := func(nanoseconds int) error {
		return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(nanoseconds), 0, 0, 0)
	}
	return func() { _ = set(before) }, set(1)
}
