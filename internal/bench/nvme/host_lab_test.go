//go:build lab

package nvme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

const hostID = "4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a03"

// load is a fio that can be stopped.
type load struct {
	*testing.T
	disk    string
	command *exec.Cmd
	stat    string // the kernel's counters of the device
}

// begin starts a fio on a block device and stops it as soon as it does I/O.
func begin(t *testing.T, disk string, w work) *load {
	t.Helper()
	l := &load{T: t, disk: disk, stat: "/sys/block/" + disk + "/stat"}
	if paths, _ := filepath.Glob("/sys/block/" + pathOf(disk) + "/stat"); len(paths) == 1 {
		l.stat = paths[0] // before Linux 6.4 a device with several paths has no counters
	}
	l.command = exec.Command(testenv.Tool(t, "fio"), "--name=load", "--filename=/dev/"+disk, "--rw="+w.mode, fmt.Sprintf("--bs=%d", w.size), fmt.Sprintf("--iodepth=%d", w.depth),
		"--ioengine=libaio", "--direct=1", "--time_based", "--runtime=3600", "--size=256m", "--norandommap", "--randrepeat=1", "--gtod_reduce=1", "--scramble_buffers=0",
		"--thread") // a separate process has its own session, and no signal to the group stops it
	l.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.command.Start(); err != nil {
		t.Fatal(err)
	}
	before := l.bytes()
	testenv.Wait(t, testenv.Within(30*time.Second), "fio to begin", func() bool { return l.bytes() >= before+uint64(w.size)*4 })
	l.stop()
	return l
}

// stop stops fio, and waits until its outstanding requests are complete.
func (l *load) stop() {
	l.Helper()
	l.signal(syscall.SIGSTOP)
	time.Sleep(settles) // its threads have stopped
	testenv.Wait(l, testenv.Within(30*time.Second), l.disk+" to be done", func() bool { return l.fields(l.stat)[8] == 0 })
}

// pathOf is the pattern of the name of a disk's one path: of nvme1n2 it is nvme1c*n2.
func pathOf(disk string) string {
	n := strings.LastIndexByte(disk, 'n')
	return disk[:n] + "c*" + disk[n:]
}

func (l *load) signal(s syscall.Signal) {
	l.Helper()
	if err := syscall.Kill(-l.command.Process.Pid, s); err != nil {
		l.Fatal(err)
	}
}

func (l *load) end() {
	_ = syscall.Kill(-l.command.Process.Pid, syscall.SIGKILL)
	_ = l.command.Wait() // it was killed
}

// settles is how long fio runs again before it is measured, and how long it rests after it is stopped.
const settles = 100 * time.Millisecond

// measure continues fio for a while.
func (l *load) measure(span time.Duration, size int) sample {
	l.Helper()
	l.signal(syscall.SIGCONT)
	time.Sleep(settles)
	bytes, idle, start := l.bytes(), l.idle(), time.Now()
	time.Sleep(span)
	bytes, idle = l.bytes()-bytes, l.idle()-idle
	s := sample{bytes: float64(bytes), operations: float64(bytes) / float64(size), wall: time.Since(start)}
	l.stop()
	if s.busy = processors*s.wall - idle; bytes == 0 {
		l.Fatalf("nothing went through %s", l.disk)
	}
	return s
}

const (
	processors = 2 // of the guest
	sector     = 512
)

// bytes returns the bytes read and written: Documentation/admin-guide/iostats.rst.
func (l *load) bytes() uint64 {
	l.Helper()
	f := l.fields(l.stat)
	return (f[2] + f[6]) * sector
}

// idle returns how long the processors were idle: proc_stat(5), in hundredths of a second.
func (l *load) idle() time.Duration {
	l.Helper()
	f := l.fields("/proc/stat")
	return time.Duration(f[3]+f[4]) * 10 * time.Millisecond
}

// fields are the numbers of a file's first line.
func (l *load) fields(file string) (all []uint64) {
	l.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		l.Fatal(err)
	}
	line, _, _ := strings.Cut(strings.TrimPrefix(string(text), "cpu "), "\n")
	for _, word := range strings.Fields(line) {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			l.Fatalf("%s: %v", file, err)
		}
		all = append(all, n)
	}
	if len(all) < 8 {
		l.Fatalf("%s: %q", file, line)
	}
	return all
}
