package flows

import (
	"golang.org/x/sys/unix"
)

// observe adds what the sink knows of the flow.
func (w *writer) observe(s *FlowStatus) error {
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
	d := w.disk.queue.Stats()
	s.KernelBytes["disk"] = d.Copied
	s.DiskBytes = d.BytesWritten
	s.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range d.Errors {
		s.DiskErrors[unix.ErrnoName(errno)] = n
	}
	return w.disk.store.Observe(s, w.places.newest)
}
