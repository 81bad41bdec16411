package log

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	blockLen = 4096     // writes are multiples of it
	diskLen  = 64 << 20 // of the file, which is written from its beginning again
)

// writeAndFlush measures the disk alone: one write of that many bytes, rounded up to blocks, and a
// flush, repeated on a thread of a CPU. A durable log whose writes have one record of every client
// cannot be faster.
func writeAndFlush(dir string, bytes, records, cpu int, s span) (got sample, err error) {
	path := filepath.Join(dir, "disk")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	if err := errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, diskLen), f.Sync()); err != nil {
		return got, fmt.Errorf("allocate %s: %w", path, err)
	}
	length := (bytes + blockLen - 1) / blockLen * blockLen
	b, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(b)) }()
	took, err := onCPU(cpu, func() ([]time.Duration, error) { return writes(f, b, s) })
	if err != nil {
		return got, err
	}
	var all time.Duration
	for _, one := range took {
		all += one
	}
	slices.Sort(took)
	at := func(share float64) float64 { return float64(took[int(share*float64(len(took)-1))]) }
	return sample{records: float64(len(took) * records), seconds: all.Seconds(), typical: at(0.5), tail: at(0.99)}, nil
}

// onCPU calls f on a thread that stays on a CPU and ends with it.
func onCPU[T any](cpu int, f func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var set unix.CPUSet
		set.Set(cpu)
		if err = unix.SchedSetaffinity(0, &set); err == nil {
			value, err = f()
		}
	}()
	<-done
	return value, err
}

// writes writes and flushes for a while. It returns how long each pair took after the warm-up, at
// least one.
func writes(f *os.File, b []byte, s span) (took []time.Duration, err error) {
	at := int64(0)
	for begin := time.Now(); len(took) == 0 || time.Since(begin) < s.warm+s.counted; {
		since := time.Now()
		if _, err := f.WriteAt(b, at); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, fmt.Errorf("flush %s: %w", f.Name(), err)
		}
		if since.Sub(begin) >= s.warm {
			took = append(took, time.Since(since))
		}
		if at += int64(len(b)); at+int64(len(b)) > diskLen {
			at = 0
		}
	}
	return took, nil
}
