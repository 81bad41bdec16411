package osthread

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
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

// TestNamespace: a function runs in the namespace of another thread, and the caller's thread stays in its own.
func TestNamespace(t *testing.T) {
	testenv.Root(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	var there Namespace
	var err error
	pair.B.Do(t, func() { there, err = Here() })
	testenv.Must(t, err)
	find := func() error {
		_, err := net.InterfaceByName(pair.B.Ifname)
		return err
	}
	testenv.Checkf(t, there.Do(find), "in the namespace")
	if err := find(); err == nil {
		t.Error("the caller is in the other namespace, too")
	}
	if err := (Namespace{}).Do(find); err == nil {
		t.Error("any namespace is the other one")
	}
	testenv.Check(t, there.Close())
	if err := there.Do(find); err == nil || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("in a namespace that is closed: %v", err)
	}
}
