package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

// The metrics of a flow's source and of its disk.
var (
	descUp       = describe("flow_up", "1 while the flow runs.", "flow")
	descWaits    = describe("flow_waiting", "1 while the flow waits for an external fault to end: the interface is down, or the disk is full or does not answer.", "flow")
	descRestarts = describe("flow_restarts_total", "How often it started again by itself: what had failed was there again, or the log of a member of a group was cut.", "flow")
	descZeroCopy = describe("zero_copy", "1 when the driver granted zero copy.", "flow", "interface")
	descArrival  = describe("arrival_times", "1 when packets are stamped with their arrival time. 0 when they are stamped when the flow takes them from the rings; status says why.", "flow", "interface")
	descOffered  = describe("offered_packets_total", "Packets that arrived at the interface. For a replay: packets in the captures that are sent through the interface.", "flow", "interface")
	descPackets  = describe("received_packets_total", "Packets that the flow took from the rings. For a flow without an interface (the label is empty): messages received, requests served, or packets generated.", "flow", "interface")
	descBytes    = describe("received_bytes_total", "Bytes of packets received from the rings.", "flow", "interface")
	descStamped  = describe("card_stamped_packets_total", "Packets received with a time of the card's clock.", "flow", "interface")
	descBuffer   = describe("buffer_blocks", "Blocks of the ring of a packet socket.", "flow", "interface")
	descInUse    = describe("buffer_held_blocks", "Blocks of the ring of a packet socket that wait for the disk.", "flow", "interface")
	descFull     = describe("buffer_full_total", "How often none of them was free. Packets are then dropped: buffer_full.", "flow", "interface")
	descFar      = describe("far_ends", "How many of the flow's card, disk and worker are on another NUMA node than the region. Every packet crosses between the nodes.", "flow")
	descPassed   = describe("passed_packets_total", "Packets left to the kernel, by reason.", "flow", "interface", "reason")
	descDropped  = describe("dropped_packets_total", "Packets lost, by reason.", "flow", "interface", "reason")
	descJoined   = describe("joined", "1: the host is a member of the multicast group for the flow; 0: it is not now, and status says why. source is empty for any source.", "flow", "group", "source", "interface")
	descRule     = describe("rule_packets_total", "Packets that a rule of the filter matched since the filter came into force; op is what it does with them: take, leave or drop.", "flow", "interface", "rule", "op")
	descRuleSize = describe("rule_bytes_total", "Bytes of packets that a rule of the filter matched, since the filter came into force.", "flow", "interface", "rule", "op")
	descCounted  = describe("filter_count", "Values of the map counters of a filter's own program, by the names that the program gives them. The metric has no type, because only the author of the program knows whether a value may decrease.", "flow", "interface", "reason")
	descCopied   = describe("copied_bytes_total", "Bytes of packets copied by unifiedd, by reason.", "flow", "reason")
	descKernel   = describe("kernel_copied_bytes_total", "Bytes of packets copied by the kernel, by device.", "flow", "device")
	descWritten  = describe("written_packets_total", "Packets written, up to the first packet that is not written.", "flow")
	descDurable  = describe("durable_packets_total", "Packets on stable storage, up to the first packet that is not.", "flow")
	descPending  = describe("waiting_packets", "Packets received and not yet on stable storage, of flows to storage.", "flow")
	descDisk     = describe("disk_written_bytes_total", "Bytes written to the disk, headers and padding included.", "flow")
	descErrors   = describe("disk_errors_total", "Writes and flushes that failed, by the kernel's error name: EIO, ENOSPC (retried until there is space), EPERM.", "flow", "reason")
	descStalls   = describe("stalls_total", "Rounds in which something waited for the sink: a disk, peers, or the interface of a replay. Packets then wait in the rings, and clients for credits.", "flow")
	descSegments = describe("segments_total", "Segments begun.", "flow")
)

func collectFlow(out chan<- prometheus.Metric, f *status.Flow) {
	gauge(out, descUp, truth(f.State.Up()), f.Name)
	gauge(out, descWaits, truth(f.State == status.Waiting), f.Name)
	counter(out, descRestarts, f.Restarts, f.Name)
	collectTaken(out, f)
	gauge(out, descFar, float64(len(f.Far)), f.Name)
	each(out, descCopied, f.CopiedBytes, f.Name)
	each(out, descKernel, f.KernelBytes, f.Name)
	counter(out, descWritten, f.Written.Packets, f.Name)
	counter(out, descDurable, f.Durable.Packets, f.Name)
	if strings.HasSuffix(f.Kind, "-storage") {
		gauge(out, descPending, float64(waiting(f)), f.Name)
	}
	counter(out, descDisk, f.DiskBytes, f.Name)
	each(out, descErrors, f.DiskErrors, f.Name)
	counter(out, descStalls, f.Stalls, f.Name)
	counter(out, descSegments, f.Segments, f.Name)
	collectFiles(out, f)
	collectIndex(out, f)
	collectStreams(out, f)
	collectFrames(out, f)
	collectReplay(out, f)
}

// collectTaken sends the numbers of received packets, or of messages and requests for a flow
// without packets.
func collectTaken(out chan<- prometheus.Metric, f *status.Flow) {
	iface := ""
	if strings.HasPrefix(f.Kind, "network-") {
		iface = f.From
		gauge(out, descZeroCopy, truth(f.ZeroCopy), f.Name, iface)
		gauge(out, descArrival, truth(f.NoArrival == ""), f.Name, iface)
		counter(out, descOffered, f.Offered, f.Name, iface)
		counter(out, descStamped, f.CardStamped, f.Name, iface)
		each(out, descPassed, f.Passed, f.Name, iface)
		collectFilter(out, f)
		if b := f.Buffer; b != nil {
			gauge(out, descBuffer, float64(b.Blocks), f.Name, iface)
			gauge(out, descInUse, float64(b.Held), f.Name, iface)
			counter(out, descFull, b.Full, f.Name, iface)
		}
	}
	counter(out, descPackets, f.Packets, f.Name, iface)
	counter(out, descBytes, f.Bytes, f.Name, iface)
	each(out, descDropped, f.Dropped, f.Name, iface)
}

// collectFilter sends the multicast groups, and the counters of rules or of the user's own program.
func collectFilter(out chan<- prometheus.Metric, f *status.Flow) {
	for _, j := range f.Joined {
		gauge(out, descJoined, truth(j.Error == ""), f.Name, j.Group, j.Source, j.Interface)
	}
	for _, r := range f.Rules {
		counter(out, descRule, r.Packets, f.Name, f.From, r.Name, r.Action)
		counter(out, descRuleSize, r.Bytes, f.Name, f.From, r.Name, r.Action)
	}
	for _, c := range f.FilterCounts {
		out <- prometheus.MustNewConstMetric(descCounted, prometheus.UntypedValue, float64(c.Value), f.Name, f.From, c.Name)
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

// The metrics of the contents of files, and of their free space.
var (
	descCut      = describe("cut_packets_total", "Packets longer than the snapshot length, of which only that much was kept.", "flow")
	descCutBytes = describe("cut_bytes_total", "Bytes of packets beyond the snapshot length, which were left out.", "flow")
	descRemoved  = describe("removed_segments_total", "Complete segments that were removed: keep, more than are kept; keep_free, to leave room on the disk.", "flow", "reason")
	descNoHead   = describe("unreadable_segments", "Files with the name of a segment, and slots of a ring with batches, whose heads could not be read when the flow started. Their content is missing.", "flow")
	descFree     = describe("disk_free_bytes", "Free space of the disk, as seen last, where to.keep_free is not 0.", "flow")
	descFloor    = describe("disk_floor_bytes", "The free-space reserve: how much of the disk is to stay free.", "flow")
	descShort    = describe("disk_pauses_total", "How often writing paused because the disk had no free space above the reserve.", "flow")
	descShortFor = describe("disk_paused_seconds_total", "How long writing paused for that reason. Packets then wait in the rings, and are lost when the rings are full.", "flow")
)

// collectFiles sends the metrics of a flow's files.
func collectFiles(out chan<- prometheus.Metric, f *status.Flow) {
	if c := f.Cut; c != nil {
		counter(out, descCut, c.Packets, f.Name)
		counter(out, descCutBytes, c.Bytes, f.Name)
	}
	each(out, descRemoved, f.Removed, f.Name)
	if f.Held != nil {
		gauge(out, descNoHead, float64(f.Held.Unreadable), f.Name)
	}
	if r := f.Floor; r != nil {
		gauge(out, descFree, float64(r.Free), f.Name)
		gauge(out, descFloor, float64(r.Bytes), f.Name)
		counter(out, descShort, r.Pauses, f.Name)
		out <- prometheus.MustNewConstMetric(descShortFor, prometheus.CounterValue, r.Paused, f.Name)
	}
}

// The metrics of the indexes that a flow makes.
var (
	descIndexed      = describe("index_segments_total", "Segments that got an index, of flows with to.index.", "flow")
	descIndexWaiting = describe("index_waiting_segments", "Complete segments without an index so far.", "flow")
	descIndexFailed  = describe("index_failures_total", "Segments that stay without an index until the next start; the log says why.", "flow")
	descIndexBytes   = describe("index_bytes_total", "Bytes of the indexes made.", "flow")
	descIndexCPU     = describe("index_cpu_seconds_total", "Processors' time that making indexes took.", "flow")
)

// collectIndex sends the metrics of indexes.
func collectIndex(out chan<- prometheus.Metric, f *status.Flow) {
	x := f.Index
	if x == nil {
		return
	}
	counter(out, descIndexed, x.Segments, f.Name)
	gauge(out, descIndexWaiting, float64(x.Waiting), f.Name)
	counter(out, descIndexFailed, x.Failed, f.Name)
	counter(out, descIndexBytes, x.Bytes, f.Name)
	out <- prometheus.MustNewConstMetric(descIndexCPU, prometheus.CounterValue, x.CPU.Seconds(), f.Name)
}

// The metrics of frames between the source and the sink of a flow.
var (
	descHolds     = describe("flow_held_frames", "Frames that the flow holds between source and sink; each frame of an extent is counted.", "flow")
	descPauses    = describe("flow_pauses_total", "How often the flow held as many frames as it may, and its source had to wait.", "flow")
	descPaused    = describe("flow_paused_seconds_total", "How long the source had to wait in such pauses, until the flow held watermarks.low frames.", "flow")
	descTimes     = describe("frame_latency_seconds", "A histogram with two statuses. It starts when a packet arrived (as stamped by the kernel) or when a message was taken. Without a stamp of the system's clock it starts when the packet was taken from the ring. submitted: until the device at the other end was told of the packet. done: until it was written, acknowledged by a peer, or discarded.", "flow", "status")
	descDiscarded = describe("discarded_packets_total", "Packets and messages that a flow to nowhere received and discarded.", "flow")
)

// collectFrames sends the metrics of frames between source and sink.
func collectFrames(out chan<- prometheus.Metric, f *status.Flow) {
	if l := f.Level; l != nil {
		gauge(out, descHolds, float64(l.Held), f.Name)
		counter(out, descPauses, l.Pauses, f.Name)
		out <- prometheus.MustNewConstMetric(descPaused, prometheus.CounterValue, l.Paused, f.Name)
	}
	if t := f.FrameTimes; t != nil {
		histogram(out, descTimes, t.Submitted, f.Name, "submitted")
		histogram(out, descTimes, t.Done, f.Name, "done")
	}
	if d := f.Discarded; d != nil {
		counter(out, descDiscarded, d.Packets, f.Name)
	}
}

// The metrics of captures that are sent.
var (
	descPlayed   = describe("replay_captures_total", "Captures that were sent to their ends, each time that they were.", "flow")
	descLate     = describe("replay_late_packets_total", "Packets of captures that left later than to.late after their time.", "flow")
	descLateness = describe("replay_lateness_seconds", "A histogram: time from when a packet of a capture was due until the device had taken it.", "flow")
	descUnsent   = describe("replay_unsent_packets_total", "Packets that the interface dropped instead of sending them, of all senders.", "flow", "interface")
	descRested   = describe("replay_paused_seconds_total", "How long the interface was down and nothing was sent.", "flow")
)

// collectReplay sends the metrics of captures that are sent.
func collectReplay(out chan<- prometheus.Metric, f *status.Flow) {
	r := f.Replay
	if r == nil {
		return
	}
	counter(out, descOffered, f.Offered, f.Name, f.To)
	gauge(out, descZeroCopy, truth(f.ZeroCopy), f.Name, f.To)
	counter(out, descPlayed, r.Played, f.Name)
	counter(out, descLate, r.Late, f.Name)
	counter(out, descUnsent, r.Unsent, f.Name, f.To)
	out <- prometheus.MustNewConstMetric(descRested, prometheus.CounterValue, r.Paused, f.Name)
	histogram(out, descLateness, r.Lateness, f.Name)
}
