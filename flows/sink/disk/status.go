package disk

import (
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
)

func (w *Writer) Observe(s *status.Flow) error {
	s.Written, s.Durable = w.progress.read()
	s.Stalls, s.FrameTimes = w.stalls.Load(), w.times.times.Status()
	s.Cut = w.snapLen.Status()
	s.CopiedBytes["packed"] = w.copied.Packed.Load()
	s.CopiedBytes["multi_frame"] = w.copied.MultiFrame.Load()
	s.CopiedBytes["tight_frame"] = w.copied.Unaligned.Load()
	if w.segments == nil {
		s.KernelBytes["stream"] = s.Written.Bytes
		return nil
	}
	d := w.segments.queue.Stats()
	s.KernelBytes["disk"] = d.Copied
	s.DiskBytes = d.BytesWritten
	s.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range d.Errors {
		s.DiskErrors[unix.ErrnoName(errno)] = n
	}
	return w.segments.manager.Observe(s)
}

// CountFailed implements pipeline.Sink. In a failed flow with nothing in flight, packets that the
// source accepted and the flow has not written are lost. Segments are sealed, and the next one is
// prepared, until the flow has ended, so it looks at them again.
func (w *Writer) CountFailed(s *status.Flow, accepted uint64) {
	if w.segments != nil {
		_ = w.segments.manager.Observe(s) // an error was reported with the status before
	}
	s.Dropped["write_failed"] = 0
	if w.err.Get() != nil {
		s.Dropped["write_failed"] = accepted - w.progress.packetsWritten()
	}
}
