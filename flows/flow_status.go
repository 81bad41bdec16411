package flows

import (
	"github.com/unifiedd/unifiedd/xdp"
	"golang.org/x/sys/unix"
)

// Status is what the flow says of itself now, or said last.
func (f *Flow) Status() FlowStatus {
	r := f.running()
	s := f.lastStatus()
	if r != nil {
		s = f.observeStatus(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.State, s.Since, s.Error = f.state, f.since, ""
	if f.err != nil {
		s.Error = f.err.Error()
	}
	if f.run != nil {
		s.PPS, s.BPS = f.rate.pps, f.rate.bps
	}
	return s
}

func (f *Flow) lastStatus() FlowStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// describe is the part of the status that is configured.
func (f *Flow) describe() FlowStatus {
	return FlowStatus{
		Name: f.config.Name, From: f.config.From.Interface, To: f.to(),
		Worker: f.config.Worker, Layout: string(f.config.To.Layout), Filter: f.config.From.Filter,
		Passed: map[string]uint64{}, Dropped: map[string]uint64{}, CopiedBytes: map[string]uint64{}, KernelBytes: map[string]uint64{}, DiskErrors: map[string]uint64{},
	}
}

func (f *Flow) to() string {
	if f.config.To.Device != "" {
		return f.config.To.Device
	}
	return f.config.To.File
}

// observeStatus reads the counters of a run.
func (f *Flow) observeStatus(r *run) FlowStatus {
	s := f.describe()
	s.From = r.net.Name()
	g := r.net.Granted()
	s.TagsLost = g.TagsStripped
	s.ZeroCopy, s.WhyNot, s.MultiBuffer, s.Attach = g.ZeroCopy, g.WhyNotZeroCopy(), g.MultiBuffer, g.Mode.String()
	s.fillNodes(r.nodes.card, r.nodes.disk, f.worker, f.share.node)
	s.fillClock(g)
	for i := range r.sources {
		if st, err := r.sources[i].port.Stats(); err == nil {
			s.CardStamped += st.Stamped
		}
	}
	s.Left = r.net.Unbound()
	s.Written, s.Durable = r.places.read()
	s.Packets, s.Bytes = r.packets.Load(), r.bytes.Load()
	s.Stalls, s.Refused = r.stalls.Load(), r.refused.Load()
	err := r.fillLedger(&s)
	if err != nil {
		f.log.Warn("status is incomplete", "why", err)
	}
	r.fillCopies(&s)
	if s.Held, err = r.held(); err != nil {
		f.log.Warn("status does not say what the segments hold", "why", err)
	}
	return s
}

// fillClock says whose times the packets have.
func (s *FlowStatus) fillClock(g xdp.Granted) {
	s.CardClock = g.CardClock
	if g.CardClock && g.PTPClock >= 0 {
		s.PTPClock = &g.PTPClock
	}
	if g.NoCardClock != nil {
		s.NoCardClock = g.NoCardClock.Error()
	}
}

// fillLedger says what became of every packet that reached the interface.
func (r *run) fillLedger(s *FlowStatus) error {
	l, err := r.net.Ledger()
	if err != nil {
		return err
	}
	s.Offered, s.Waiting, s.Missing = l.Offered, l.Of(xdp.Waiting), l.Missing()
	for _, reason := range xdp.Reasons() {
		switch {
		case reason.IsLost():
			s.Dropped[reason.String()] = l.Of(reason)
		case reason != xdp.Received && reason != xdp.Waiting:
			s.Passed[reason.String()] = l.Of(reason)
		}
	}
	s.Dropped["beyond_count"] = r.unwanted.Load()
	s.Dropped["not_received"], s.Dropped["write_failed"] = 0, 0 // known at the end
	return nil
}

// abandon counts as lost what a flow that has ended did not write, and what its
// rings still held. Before, all of that may yet come to the disk.
func (s *FlowStatus) abandon(unwritten uint64) {
	s.Dropped["write_failed"] = unwritten
	s.Dropped["not_received"], s.Waiting = s.Waiting, 0
}

// fillCopies says who copied how many bytes of packets.
func (r *run) fillCopies(s *FlowStatus) {
	s.CopiedBytes["packed"] = r.copied.packed.Load()
	s.CopiedBytes["multi_frame"] = r.copied.multiFrame.Load()
	s.CopiedBytes["tight_frame"] = r.copied.tight.Load()
	s.KernelBytes["xdp"] = 0
	if !s.ZeroCopy {
		s.KernelBytes["xdp"] = s.Bytes
	}
	if r.disk == nil {
		s.KernelBytes["stream"] = s.Written.Bytes
		return
	}
	d := r.disk.queue.Stats()
	s.KernelBytes["disk"] = d.Copied
	s.DiskBytes, s.Segments = d.BytesWritten, r.disk.store.taken.Load()
	s.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range d.Errors {
		s.DiskErrors[unix.ErrnoName(errno)] = n
	}
}

// lost is how many packets were received and never reached the sink because the
// flow failed, once nothing is in flight.
func (r *run) lost() uint64 {
	if r.failed.Load() == nil {
		return 0
	}
	return r.packets.Load() - r.unwanted.Load() - r.places.packetsWritten()
}
