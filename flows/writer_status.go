package flows

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// observe adds what the sink knows of the flow.
func (w *writer) observe(s *FlowStatus) (err error) {
	s.Written, s.Durable = w.places.read()
	s.Stalls, s.FrameTimes = w.stalls.Load(), w.times.times.status()
	s.Cut = w.snap.Status()
	s.CopiedBytes["packed"] = w.copied.Packed.Load()
	s.CopiedBytes["multi_frame"] = w.copied.MultiFrame.Load()
	s.CopiedBytes["tight_frame"] = w.copied.Unaligned.Load()
	if w.disk == nil {
		s.KernelBytes["stream"] = s.Written.Bytes
		return nil
	}
	w.observeDisk(s)
	if x := w.disk.store.indexer; x != nil {
		s.Index = x.status()
	}
	if s.Held, err = w.held(); err != nil {
		return fmt.Errorf("what the segments hold: %w", err)
	}
	return nil
}

// observeDisk adds what the disk was given.
func (w *writer) observeDisk(s *FlowStatus) {
	d := w.disk.queue.Stats()
	s.Removed, s.Floor = w.disk.store.removed.status(), w.disk.store.floor.status()
	s.KernelBytes["disk"] = d.Copied
	s.DiskBytes, s.Segments = d.BytesWritten, w.disk.store.taken.Load()
	s.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range d.Errors {
		s.DiskErrors[unix.ErrnoName(errno)] = n
	}
}
