package serve

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/target"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

func (s *NVMe) Announce() []any {
	return []any{"device", s.device.Name, "listens", s.listener.Addr().String(), "subsystem", s.nqn, "bytes", s.namespaces.size()}
}

// observe reads the counters.
func (s *NVMe) Observe(to *status.Flow) error {
	st := s.server.Stats()
	to.Packets, to.Bytes, to.Latency = st.Commands, st.Read.Bytes+st.Written.Bytes, st.Latency
	to.Hosts = &status.Hosts{
		Device: s.device.Name, Listen: s.listener.Addr().String(), Subsystem: s.nqn, Subsystems: s.namespaces.subsystems(), Size: s.namespaces.size(), Namespaces: s.namespaces.status(s.server.NamespaceStats()), Hosts: st.Hosts, Queues: st.Queues,
		Commands: map[string]uint64{"read": st.Read.Commands, "write": st.Written.Commands, "flush": st.Flushes, "write_zeroes": st.Zeroes, "dataset_management": st.Discards,
			"compare": st.Compares, "admin": st.Admin, "refused": st.Refused, "failed": st.Failed, "abandoned": st.Abandoned},
		Bytes:  map[string]uint64{"read": st.Read.Bytes, "written": st.Written.Bytes, "in_capsules": st.InCapsule},
		Waited: st.Waited, Ended: st.Ended, Expired: st.Expired, GaveWay: st.GaveWay, Rejected: rejectedBy(st.Rejected), Connected: hostsOf(s.server.HostStats()),
		Unproven: st.Unproven,
	}
	if s.device.Software {
		to.CopiedBytes["placed"] = st.Brought
	}
	to.KernelBytes["disk"] = st.Disk.Copied
	to.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range st.Disk.Errors {
		to.DiskErrors[unix.ErrnoName(errno)] = n
	}
	return nil
}

func rejectedBy(counted map[fabrics.RejectReason]uint64) map[string]uint64 {
	all := map[string]uint64{}
	for why, n := range counted {
		all[why.Word()] = n
	}
	return all
}

// hostsOf puts what controllers counted under their hosts' names.
func hostsOf(controllers []target.HostStats) (all []status.Host) {
	for _, c := range controllers {
		i := slices.IndexFunc(all, func(h status.Host) bool { return h.Name == c.NQN })
		if i < 0 {
			i = len(all)
			all = append(all, status.Host{Name: c.NQN, Commands: map[string]uint64{}, Bytes: map[string]uint64{}})
		}
		h := &all[i]
		h.Queues += c.Queues
		h.Commands["all"] += c.Commands
		h.Commands["refused"] += c.Refused
		h.Commands["read"] += c.Read.Commands
		h.Commands["write"] += c.Written.Commands
		h.Bytes["read"] += c.Read.Bytes
		h.Bytes["written"] += c.Written.Bytes
	}
	return all
}
