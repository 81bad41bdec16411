package umem

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkPassTo passes 64 frames to a device's holder and back. Besides the time it reports the
// thread's CPU time per frame, which other load disturbs less.
func BenchmarkPassTo(b *testing.B) {
	r := openOrdinary(b, Config{Size: 4 << 20})
	book := r.NewBook("bench")
	worker, device := newHolder(b, book, OwnerWorker), newHolder(b, book, OwnerXDP)
	fs := make([]Frame, 64)
	worker.Take(fs)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportAllocs()
	begin := threadTime(b)
	for b.Loop() {
		worker.PassTo(device, fs)
		device.PassTo(worker, fs)
	}
	b.ReportMetric(float64(threadTime(b)-begin)/float64(b.N)/(2*64), "cpu-ns/frame")
}

// threadTime returns the CPU time of this thread in nanoseconds.
func threadTime(b *testing.B) int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Fatal(err)
	}
	return now.Nano()
}

// BenchmarkPublish publishes a book with two holders to Snapshot.
func BenchmarkPublish(b *testing.B) {
	r := openOrdinary(b, Config{Size: 4 << 20})
	book := r.NewBook("bench")
	newHolder(b, book, OwnerWorker)
	newHolder(b, book, OwnerXDP)
	for b.Loop() {
		book.Publish()
	}
}

// BenchmarkTakeGive takes 64 frames from the pool and gives them back.
func BenchmarkTakeGive(b *testing.B) {
	r := openOrdinary(b, Config{Size: 4 << 20})
	worker := newHolder(b, r.NewBook("bench"), OwnerWorker)
	fs := make([]Frame, 64)
	b.ReportAllocs()
	for b.Loop() {
		worker.Give(fs[:worker.Take(fs)])
	}
}
