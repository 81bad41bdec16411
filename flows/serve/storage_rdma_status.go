package serve

import (
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/status"
)

func (s *Blocks) Announce() []any {
	a := []any{"device", s.device.Name, "listens", s.listener.Addr().String(), "bytes", s.target.Size()}
	if !s.secure {
		a = append(a, "plain", device.PlaintextWarning(s.listener.Addr()))
	}
	return a
}

// observe reads the counters.
func (s *Blocks) Observe(to *status.Flow) error {
	st := s.server.Stats()
	to.Packets, to.Bytes, to.Latency = st.Served, st.Bytes, st.Latency
	b := &status.Blocks{
		Device: s.device.Name, Listen: s.listener.Addr().String(), TLS: s.secure, Size: s.target.Size(),
		Requests: st.Requests, Served: st.Served, Bytes: st.Bytes, Retried: st.Retried, Waited: st.Waited, Abandoned: st.Abandoned, Ended: st.Ended,
		Refused: status.RefusedBy(st.Refused), TurnedAway: status.RefusedBy(st.TurnedAway), Handshakes: device.Handshakes(s.listener), Frames: cacheStatus(st.Frames), Extents: cacheStatus(st.Extents),
	}
	for _, c := range st.Clients {
		b.Clients = append(b.Clients, status.Reader{Name: c.Name, Address: c.Address, Since: c.Since, Requests: c.Requests, Served: c.Served, Bytes: c.Bytes, Refused: status.RefusedBy(c.Refused)})
	}
	to.Blocks = b
	to.KernelBytes["disk"] = st.Disk.Copied
	to.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range st.Disk.Errors {
		to.DiskErrors[unix.ErrnoName(errno)] = n
	}
	return nil
}

func cacheStatus(c blocks.Cache) status.Cache {
	return status.Cache{Buffers: c.Buffers, Hits: c.Hits, Misses: c.Misses, Evictions: c.Evictions, Reads: c.Reads, BytesRead: c.BytesRead, Failed: c.Failed}
}
