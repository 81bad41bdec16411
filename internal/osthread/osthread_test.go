package osthread

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() { runtime.LockOSThread() } // TestMain runs on the process's first thread

// used is the thread that a function had which was to run on the first one.
var used int

func TestMain(m *testing.M) {
	done := make(chan struct{})
	run(func() { used = unix.Gettid() }, done)
	os.Exit(m.Run())
}

// TestFirstThread: a function that would have got the process's first thread gets another one.
func TestFirstThread(t *testing.T) {
	if used == 0 || used == os.Getpid() {
		t.Errorf("the function ran on thread %d of process %d", used, os.Getpid())
	}
}

// TestThreadEnds: the thread ends with its function, also if that ends its goroutine.
func TestThreadEnds(t *testing.T) {
	for name, end := range map[string]func(){"returns": func() {}, "exits": runtime.Goexit} {
		thread := 0
		Run(func() {
			thread = unix.Gettid()
			end()
		})
		path := fmt.Sprintf("/proc/self/task/%d", thread)
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(path); err != nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the function %s, and its thread does not end", name)
			}
		}
	}
}
