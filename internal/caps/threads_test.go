package caps

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestThreadEnded: ended recognises the kernel's two errors: the thread ended before its file was
// opened, or between opening and reading.
func TestThreadEnded(t *testing.T) {
	name, f := endedThread(t)
	defer f.Close()
	if _, err := io.ReadAll(f); !ended(err) {
		t.Errorf("reading what was opened before: %v is not the end of a thread", err)
	}
	if _, err := os.ReadFile(name); !ended(err) {
		t.Errorf("opening it afterwards: %v is not the end of a thread", err)
	}
	if ended(nil) || ended(unix.EACCES) {
		t.Error("everything is the end of a thread")
	}
}

// endedThread opens the status file of a thread that has ended. The first thread of a process never
// ends while others run. So, if necessary, that thread starts the goroutine whose thread ends.
func endedThread(t *testing.T) (name string, f *os.File) {
	t.Helper()
	done, opened := make(chan error), make(chan struct{})
	defer close(opened)
	var open func()
	open = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			go open() // on another thread, since this one is taken
			<-opened
			runtime.UnlockOSThread()
			return
		}
		var err error
		name = fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid())
		f, err = os.Open(name)
		done <- err
	}
	go open()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for range 500 {
		if _, err := os.Stat(name); err != nil {
			return name, f
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the thread does not end")
	return "", nil
}
