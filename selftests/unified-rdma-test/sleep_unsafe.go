package main

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sleep is nanosleep(2), which the Go scheduler hears nothing of: it has nobody else for the thread. A signal may end it sooner.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
}

// punctual has the timers of the thread that calls be as exact as the kernel can, until back is called on it.
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
