package metrics

import (
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// special collects the metrics that are no fields of a status.
func (s *scrape) special(d *status.Daemon) {
	s.add("time_seconds", float64(time.Now().UnixMicro())/1e6)
	s.add("worker_absences_total", 0)
	longest := time.Duration(0)
	for _, w := range d.Workers {
		s.add("worker_absences_total", w.Away.Count)
		longest = max(longest, w.Away.Longest)
	}
	s.add("worker_absence_longest_seconds", longest)
	s.add("config_last_reload_successful", d.Config.Last == nil || d.Config.Last.Outcome.Good())
	if d.Cluster != nil {
		s.cluster(d.Cluster)
	}
	for i := range d.Flows {
		f := &d.Flows[i]
		s.flow(f)
		s.packets(f)
		s.ends(f)
	}
}

// cluster collects how peers are found by their names.
func (s *scrape) cluster(c *status.Cluster) {
	if c.Name != "" { // it registers
		s.add("cluster_registered", c.Registered)
		s.add("cluster_unregistered", len(c.Unregistered), "flow")
		s.add("cluster_unregistered", len(c.UnregisteredStates), "state")
	}
	s.add("cluster_names", map[string]int{status.NameRegistered: 0, status.NameGone: 0, status.NameUnknown: 0, status.NameRefused: 0})
	for _, n := range c.Names {
		s.add("cluster_names", 1, n.State)
	}
}

// flow collects what every flow has.
func (s *scrape) flow(f *status.Flow) {
	s.add("flow_up", f.State.Up(), f.Name)
	s.add("flow_waiting", f.State == status.Waiting, f.Name)
	s.add("far_ends", len(f.Far), f.Name)
	s.add("written_packets_total", f.Written.Packets, f.Name)
	s.add("durable_packets_total", f.Durable.Packets, f.Name)
	if strings.HasSuffix(f.Kind, "-storage") {
		s.add("waiting_packets", waiting(f), f.Name)
	}
}

// packets collects what passes a flow's interface, or the numbers of messages and requests of a flow without packets.
func (s *scrape) packets(f *status.Flow) {
	iface := ""
	if strings.HasPrefix(f.Kind, "network-") {
		iface = f.From
		s.add("arrival_times", f.NoArrival == "", f.Name, iface)
		s.add("card_stamped_packets_total", f.CardStamped, f.Name, iface)
		s.add("passed_packets_total", f.Passed, f.Name, iface)
	}
	s.add("received_packets_total", f.Packets, f.Name, iface)
	s.add("received_bytes_total", f.Bytes, f.Name, iface)
	s.add("dropped_packets_total", f.Dropped, f.Name, iface)
	if f.Replay != nil {
		iface = f.To
	}
	if iface != "" {
		s.add("zero_copy", f.ZeroCopy, f.Name, iface)
		s.add("offered_packets_total", f.Offered, f.Name, iface)
	}
}

// waiting returns how many of the received packets may yet become durable.
func waiting(f *status.Flow) uint64 {
	settled, come := f.Durable.Packets+f.Dropped["beyond_count"]+f.Dropped["write_failed"], f.Packets
	if f.Feed != nil { // the disk gets messages, and not packets
		come = f.Feed.Messages - f.Feed.Empty
	}
	return come - min(settled, come) // the counters are not read at the same moment
}

// ends collects the rest, of groups, peers, clients and hosts.
func (s *scrape) ends(f *status.Flow) {
	if g := f.Group; g != nil {
		s.add("group_leads", g.Leader == g.Member, f.Name)
		s.add("group_leader_known", g.Leader != "", f.Name)
		for _, p := range g.Paths {
			s.add("group_path_up", p.State == "connected", f.Name, p.Device)
			s.add("group_path_connections_total", p.Connections, f.Name, p.Device)
			s.add("group_path_failures_total", p.Failures, f.Name, p.Device)
		}
	}
	if f.Sends != nil {
		for _, p := range f.Sends.Peers {
			if p.Named != "" {
				s.add("peer_followed_total", p.Followed, f.Name, p.Name)
			}
		}
	}
	if b := f.Blocks; b != nil && b.Discarded != nil {
		s.add("cache_restart_buffers_total", b.Kept, f.Name, "kept")
	}
	if h := f.Hosts; h != nil {
		s.add("nvme_ended_queues_total", h.Ended-min(h.Expired, h.Ended), f.Name, "broken")
	}
}
