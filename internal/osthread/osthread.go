// Package osthread runs functions on threads of their own, for changes of a thread that cannot or should not be undone:
// another network namespace, another user, fewer rights.
package osthread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run runs f on a thread of its own, and returns when f has ended. The thread ends with f, and nothing else ever runs on
// it.
//
// A goroutine that ends while it is locked to its thread ends the thread. The process's first thread is the exception:
// Go cannot end it, so it would stay as f has left it, and keep f's namespace. Run never uses that one.
func Run(f func()) {
	done := make(chan struct{})
	go run(f, done)
	<-done
}

func run(f func(), done chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go run(f, done) // on another thread, since this one is locked until f has ended
		<-done
		runtime.UnlockOSThread()
		return
	}
	defer close(done)
	f() // the thread stays locked, and so ends
}
