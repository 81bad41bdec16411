package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/printable"
)

// decode reads an answer of the daemon to be printed. What peers, hosts and disks have named cannot change the terminal.
func decode(raw []byte, answer any) error {
	err := json.Unmarshal(raw, answer)
	printable.Document(answer)
	return err
}

// printRawStatus prints the daemon's answer for people.
func printRawStatus(w io.Writer, raw []byte) error {
	var s status.Daemon
	if err := decode(raw, &s); err != nil {
		return fmt.Errorf("the daemon's answer is not valid: %w (is it of another version?)", err)
	}
	return printStatus(w, &s)
}

// printStatus prints a status for people.
func printStatus(w io.Writer, s *status.Daemon) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "unifiedd %s\tprocess %d\tup %v\n", s.Version, s.PID, time.Since(s.Started).Round(time.Second))
	printConfig(t, &s.Config)
	on := s.Region.Pages
	if s.Region.Device != "" {
		on = s.Region.Device
	}
	fmt.Fprintf(t, "region\t%s on %s\t%d frames of %d: %s\n", config.Size(s.Region.Bytes), on, s.Region.Frames, s.Region.FrameSize, list(s.Region.Owners))
	if len(s.Region.Nodes) > 1 {
		fmt.Fprintf(t, "nodes\tthe region lies on several NUMA nodes, in bytes: %v\n", s.Region.Nodes)
	}
	fmt.Fprintf(t, "registered\t%s\n", strings.Join(s.Region.Registered, ", "))
	printRDMADevices(t, s.RDMA)
	printPrograms(t, s.Programs)
	printStates(t, s.States)
	if r := s.Trace; r != nil && r.Error != "" {
		fmt.Fprintf(t, "trace\tnot all flows are recorded: %s\n", r.Error)
	}
	printIdentity(t, s)
	printCluster(t, s.Cluster)
	for _, w := range s.Workers {
		if w.Away.Count > 0 {
			fmt.Fprintf(t, "worker %s\tdid not poll its flows for 20 ms or longer %d times, for at most %v: packets wait in the rings, and are lost when those are full\n", w.Name, w.Away.Count, w.Away.Longest.Round(time.Millisecond))
		}
	}
	for i := range s.Flows {
		printFlow(t, &s.Flows[i])
	}
	return t.Flush()
}

func printFlow(w io.Writer, f *status.Flow) {
	fmt.Fprintf(w, "\nflow %s\t%s since %s\n", f.Name, f.State, f.Since.Format(time.RFC3339))
	if f.Error != "" {
		fmt.Fprintf(w, "  why\t%s\n", strings.ReplaceAll(f.Error, "\n", "\n  \t"))
	}
	if !f.NextStart.IsZero() {
		fmt.Fprintf(w, "  restart\tthe flow is started again when that is possible, next at %s (unifiedd stop %s ends that)\n", f.NextStart.Format(time.TimeOnly), f.Name)
	}
	if f.Restarts > 0 {
		fmt.Fprintf(w, "  restarts\t%d times it failed, and started again by itself\n", f.Restarts)
	}
	from, to, _ := strings.Cut(f.Kind, "-")
	fmt.Fprintf(w, "  path\t%s → %s (%s)\n", f.From, f.To, how(f, to == "storage"))
	for _, name := range slices.Sorted(maps.Keys(f.ConfiguredAs)) {
		fmt.Fprintf(w, "  interface\t%s, configured as %s\n", name, f.ConfiguredAs[name])
	}
	for _, far := range f.Far {
		fmt.Fprintf(w, "  far\t%s\n", far)
	}
	fmt.Fprintf(w, "  rate\t%.0f %s/s, %s\n", f.PPS, unitOf(f), bits(f.BPS))
	switch from {
	case "network":
		printNetwork(w, f)
	case "rdma":
		printReceives(w, f)
	case "storage":
		printBlocks(w, f)
		printHosts(w, f.Hosts)
		printReplay(w, f)
	case "null":
		printGenerated(w, f)
	case "attach":
		printSubmits(w, f)
	}
	if to == "storage" {
		printStorage(w, f)
	}
	if f.Group != nil {
		printGroup(w, f.Group)
	}
	if f.Sends != nil {
		printSends(w, f.Sends)
	}
	printOrders(w, f)
	printGives(w, f)
	printArrives(w, f)
	printDiscarded(w, f)
	printLevel(w, f.Level)
	printFeed(w, f.Feed)
	for _, s := range f.Stages {
		fmt.Fprintf(w, "  stage\t%s: changed %d, left: %s\n", s.Kind, s.Changed, nonzero(s.Left))
	}
	printTimes(w, f.FrameTimes)
	if l := f.Latency; l != nil {
		fmt.Fprintf(w, "  latency\tmedian %s, 99 %% %s, 99.9 %% %s, at most %s\n", brief(l.P50), brief(l.P99), brief(l.P999), brief(l.Max))
	}
	fmt.Fprintf(w, "  copies per byte\tours %s, the kernel's %s\n", perByte(f.CopiedBytes, f.Bytes), perByte(f.KernelBytes, f.Bytes))
}

// how returns a flow's layout, or the two ends that it connects if it has none.
func how(f *status.Flow, laid bool) string {
	if laid {
		return f.Layout + " layout"
	}
	return strings.Replace(f.Kind, "-", " to ", 1)
}

// unitOf returns what a flow counts.
func unitOf(f *status.Flow) string {
	switch from, to, _ := strings.Cut(f.Kind, "-"); {
	case from == "rdma" || from == "attach":
		return "messages"
	case from == "storage" && to != "network":
		return "requests"
	}
	return "packets"
}

// brief formats a time for people, with three digits.
func brief(ns int64) string {
	d := time.Duration(ns)
	for _, to := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= to {
			return d.Round(to / 100).String()
		}
	}
	return d.String()
}

// printNetwork prints the source that receives packets.
func printNetwork(w io.Writer, f *status.Flow) {
	if f.Filter != "" {
		fmt.Fprintf(w, "  filter\t%s\n", f.Filter)
	}
	if len(f.Mirrors) > 0 {
		fmt.Fprintf(w, "  mirrors\t%s; the host receives its packets as before\n", strings.Join(f.Mirrors, " and "))
	}
	for _, j := range f.Joined {
		fmt.Fprintf(w, "  joined\t%s from %s on %s%s\n", j.Group, cmp.Or(j.Source, "any source"), j.Interface, failed(j.Error))
	}
	for _, r := range f.Rules {
		fmt.Fprintf(w, "  rule %s\t%d packets, %d bytes: %s %s\n", r.Name, r.Packets, r.Bytes, r.Action, cmp.Or(r.Match, "every packet"))
	}
	for _, c := range f.FilterCounts {
		fmt.Fprintf(w, "  counted %s\t%d\n", c.Name, c.Value)
	}
	if f.WhyEngine != "" {
		fmt.Fprintf(w, "  engine\t%s: %s\n", f.Engine, f.WhyEngine)
	}
	if f.Fanout != "" {
		fmt.Fprintf(w, "  fanout\t%s; it has the packets of some connections\n", f.Fanout)
	}
	if f.Buffer != nil {
		printBuffer(w, f.Buffer)
	} else {
		fmt.Fprintf(w, "  granted\t%s\n", granted(f))
	}
	fmt.Fprintf(w, "  times\t%s\n", times(f))
	for _, rule := range f.Steered {
		fmt.Fprintf(w, "  steered\t%s\n", rule)
	}
	if f.NotSteered != "" {
		fmt.Fprintf(w, "  not steered\t%s\n", f.NotSteered)
	}
	if len(f.Left) > 0 {
		fmt.Fprintf(w, "  left\tqueues %v are not bound: their packets stay with the kernel\n", f.Left)
	}
	for _, i := range f.Interfaces {
		fmt.Fprintf(w, "  %s\t%d packets offered, %d received, lost: %s\n", i.Name, i.Offered, i.Received, nonzero(i.Dropped))
	}
	fmt.Fprintf(w, "  offered\t%d packets: %d received, %d waiting\n", f.Offered, f.Packets, f.Waiting)
	fmt.Fprintf(w, "  to the kernel\t%s\n", nonzero(f.Passed))
	fmt.Fprintf(w, "  lost\t%s\n", nonzero(f.Dropped))
	printRemedies(w, f)
}

// printRemedies prints what to do about packets that are lost.
func printRemedies(w io.Writer, f *status.Flow) {
	if !f.LostAt.IsZero() {
		fmt.Fprintf(w, "  \tthe last at %s\n", f.LostAt.Format(time.RFC3339))
	}
	for _, reason := range slices.Sorted(maps.Keys(f.Lost())) {
		fmt.Fprintf(w, "  \t%s: %s\n", reason, f.Why(reason))
	}
}

// printFeed prints the messages of a feed, and what each line had.
func printFeed(w io.Writer, f *status.Feed) {
	if f == nil {
		return
	}
	fmt.Fprintf(w, "  feed\tsession %s: %d messages in order, %d lost in %d gaps, %d requests for retransmission, %d restarts of the sender\n", cmp.Or(f.Session, "not seen yet"), f.Messages, f.Lost, f.Gaps, f.Requests, f.Restarts)
	for _, l := range f.Lines {
		fmt.Fprintf(w, "  line %s\t%d won, %d duplicates, %d missing, %d late, refused: %s\n", l.Name, l.Wins, l.Duplicates, l.Missing, l.Late, nonzero(l.Refused))
	}
}

// failed formats why something is not as configured; empty: it is.
func failed(why string) string {
	if why == "" {
		return ""
	}
	return ": not now: " + why
}

// printStorage prints the end on a disk.
func printStorage(w io.Writer, f *status.Flow) {
	if l := f.Log; l != nil {
		fmt.Fprintf(w, "  log\tpositions %d to %d; written up to %d, durable up to %d, acknowledged (%s) up to %d\n", l.First, l.Last, l.Written, l.Durable, l.Acknowledge, l.Acknowledged)
		if l.Lost > 0 {
			fmt.Fprintf(w, "  \t%d messages of the newest segments were not there any more at the start, though the disk had called them durable (see unifiedd log verify)\n", l.Lost)
		}
	}
	fmt.Fprintf(w, "  written\t%s\n", position(f.Written))
	fmt.Fprintf(w, "  durable\t%s\n", position(f.Durable))
	if c := f.Cut; c != nil {
		fmt.Fprintf(w, "  snaplen\t%d bytes: %d packets were longer, and %d bytes of them left out\n", c.SnapLen, c.Packets, c.Bytes)
	}
	if f.Held != nil {
		printHeld(w, f.Held)
	}
	if r := f.Floor; r != nil {
		fmt.Fprintf(w, "  room\t%s are free, and %s (%s) stay so; nothing could be written %d times, %.1f s in all\n", status.Bytes(r.Free), status.Bytes(r.Bytes), r.KeepFree, r.Pauses, r.Paused)
		if r.Free < r.Bytes {
			fmt.Fprintf(w, "  \tno segment is begun with less room: %s\n", status.RemedyFull)
		}
	}
	if n := f.Removed["keep"] + f.Removed["keep_free"]; n > 0 {
		fmt.Fprintf(w, "  removed\t%s: %s\n", plural(int(n), "segment"), nonzero(f.Removed))
	}
	if x := f.Index; x != nil {
		fmt.Fprintf(w, "  index\t%s, %d bytes, %v of processors' time; %d waiting, %d failed\n", plural(int(x.Segments), "segment"), x.Bytes, x.CPU.Round(time.Millisecond), x.Waiting, x.Failed)
	}
	fmt.Fprintf(w, "  disk\t%d bytes in %d segments, full in %d rounds; errors: %s\n", f.DiskBytes, f.Segments, f.Stalls, nonzero(f.DiskErrors))
}

func printHeld(w io.Writer, h *status.Usage) {
	fmt.Fprintf(w, "  kept\t%s, %s with what is prepared, packets from %s to %s\n", plural(int(h.Segments), "segment"), status.Bytes(h.Bytes), when(h.Oldest), when(h.Newest))
	if h.Unreadable > 0 {
		fmt.Fprintf(w, "  \t%s without a head that can be read: what was in them is missing (see the log)\n", plural(int(h.Unreadable), "segment"))
	}
	if r := h.Ring; r != nil {
		fmt.Fprintf(w, "  ring\t%s of %s, in use up to generation %d\n", plural(int(r.Slots), "slot"), config.Size(r.SegmentBytes), r.Generation)
	}
}

func when(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func granted(f *status.Flow) string {
	mode := "zero copy"
	if !f.ZeroCopy {
		mode = "the kernel copies"
		if f.WhyNot != "" {
			mode += " (" + f.WhyNot + ")"
		}
	}
	if f.MultiBuffer {
		mode += ", multi-buffer"
	}
	beside := ""
	if f.Beside != "" {
		beside = " beside others (" + f.Beside + ")"
	}
	return fmt.Sprintf("%s, XDP in the %s%s, rings of %d", mode, f.Attach, beside, f.Ring)
}

// printBuffer prints the ring of a packet socket.
func printBuffer(w io.Writer, b *status.Buffer) {
	how := ""
	if b.Pinned {
		how = ", pinned for each write (raise LimitMEMLOCK, or run Linux 6.5 or later)"
	}
	fmt.Fprintf(w, "  packet socket\tring of %d MiB, %d of %d blocks wait for the disk%s\n", b.Bytes>>20, b.Held, b.Blocks, how)
	if d := b.Last; d != nil {
		fmt.Fprintf(w, "  ring full\t%d packets dropped from %s to %s\n", d.Packets, d.Since.Format(time.DateTime), d.Until.Format(time.DateTime))
	}
}

// times returns whose clock gives packets their arrival times.
func times(f *status.Flow) string {
	switch {
	case f.CardClock && f.PTPClock != nil:
		return fmt.Sprintf("the card's clock (/dev/ptp%d) for %d packets, the system's for the others", *f.PTPClock, f.CardStamped)
	case f.CardClock:
		return fmt.Sprintf("the card's clock for %d packets, the system's for the others", f.CardStamped)
	case f.NoArrival != "":
		return "the system's clock, when packets are taken from the rings (" + f.NoArrival + ")"
	case f.NoCardClock != "":
		return "the system's clock (" + f.NoCardClock + ")"
	}
	return "the system's clock"
}

func position(p status.Position) string {
	if p.File == "" {
		return "nothing yet"
	}
	return fmt.Sprintf("%d packets, %d bytes, up to offset %d of %s", p.Packets, p.Bytes, p.Offset, p.File)
}

// list formats a map's entries in the order of their names.
func list[V int64 | uint64](m map[string]V) string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, m[name])
	}
	return strings.Join(names, ", ")
}

// nonzero is list without zeros.
func nonzero(m map[string]uint64) string {
	some := make(map[string]uint64)
	for name, n := range m {
		if n != 0 {
			some[name] = n
		}
	}
	if len(some) == 0 {
		return "nothing"
	}
	return list(some)
}

// perByte returns how often each byte of a packet was copied.
func perByte(copied map[string]uint64, bytes uint64) string {
	var sum uint64
	for _, n := range copied {
		sum += n
	}
	if sum == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f (%s)", float64(sum)/float64(max(bytes, 1)), nonzero(copied))
}

// bits formats a bit rate for people.
func bits(bps float64) string {
	for _, unit := range []string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s"} {
		if bps < 1000 || unit == "Gbit/s" {
			return fmt.Sprintf("%.1f %s", bps, unit)
		}
		bps /= 1000
	}
	return ""
}

// printReceives prints the source that receives from RDMA clients.
func printReceives(w io.Writer, f *status.Flow) {
	r := f.Receives
	if r == nil {
		return
	}
	fmt.Fprintf(w, "  listens\t%s, by %s (%s)\n", r.Listen, r.Device, trust(r.TLS))
	fmt.Fprintf(w, "  received\t%d messages, %d bytes; %d receives wait; %d duplicates\n", f.Packets, f.Bytes, r.Posted, r.Replays)
	fmt.Fprintf(w, "  connections\t%d made, %d broken\n", r.Connected, r.Broken)
	fmt.Fprintf(w, "  refused\tby the flow: %s; in the handshake: %s\n", nonzero(r.Refused), nonzero(r.Handshakes))
	if r.Method == "write" {
		fmt.Fprintf(w, "  granted\t%d frames, which clients may write to; %d grants until now\n", r.Granted, r.Grants)
	}
	printListenPaths(w, r.Paths)
	for i := range r.Clients {
		c := &r.Clients[i]
		fmt.Fprintf(w, "  client\t%s, session %s: %s%s; %d messages, acknowledged up to %d of %d, may %s up to %d\n",
			c.Name, c.Session, c.State, because(c.Error), c.Messages, c.Acknowledged, c.Sequence, r.Method, c.Limit)
	}
}

// printGroup prints a member's part in its group.
func printGroup(w io.Writer, g *status.Group) {
	recovering := ""
	if g.Recovering {
		recovering = "; recovering: this member may lack records that it acknowledged"
	}
	fmt.Fprintf(w, "  group\t%s: member %s is %s; %s leads epoch %d%s\n", g.Name, g.Member, g.State, cmp.Or(g.Leader, "nobody that is known"), g.Epoch, recovering)
	fmt.Fprintf(w, "  \tcommitted up to %d of %d; %d elections asked for; longest silence of a leader that went on %v; %d silent links ended\n", g.Committed, g.Last, g.Elections, g.Silence.Round(time.Microsecond), g.Silent)
	fmt.Fprintf(w, "  records\t%d sent to followers, %d bytes of them from segments; %d received from leaders; %d fenced, %d cut; %d stalled links ended\n", g.Sent, g.Copied, g.Received, g.Fenced, g.Cut, g.Stalled)
	if g.Lacking > 0 {
		limit := "any number"
		if g.CopyLimit > 0 {
			limit = fmt.Sprint(g.CopyLimit)
		}
		fmt.Fprintf(w, "  catch-up\tfollowers lack %d records: they get %d a second from segments, and may get %s\n", g.Lacking, g.CopyRate, limit)
	}
	printGroupPaths(w, g)
	fmt.Fprintf(w, "  ignored\t%s\n", nonzero(map[string]uint64{"stale_epoch": g.Stale, "not_valid": g.Refused, "not_sent": g.Dropped, "not_taken": g.Untaken}))
}

// printSends prints the sink that sends to RDMA peers.
func printSends(w io.Writer, s *status.Sends) {
	for i := range s.Peers {
		p := &s.Peers[i]
		fmt.Fprintf(w, "  peer\t%s (%s): %s%s; %d messages offered, %d acknowledged, %d waiting, %d in flight; lost: %s\n",
			cmp.Or(p.Name, p.Address), p.Address, p.State, because(p.Error), p.Offered, p.Acknowledged, p.Waiting, p.InFlight, nonzero(p.Dropped))
		fmt.Fprintf(w, "  \tconnected %d times, %d failures; %d messages sent again; room for %d%s\n", p.Connections, p.Failures, p.Resent, p.Credit, by(p.Method))
		printNamed(w, p)
		printPaths(w, p)
		if p.Standby > 0 || p.Moves > 0 {
			fmt.Fprintf(w, "  \t%d connections to other members of its group; it has moved to one of these %d times\n", p.Standby, p.Moves)
		}
	}
}

// printHosts prints the server that NVMe hosts write to and read from.
func printHosts(w io.Writer, h *status.Hosts) {
	if h == nil {
		return
	}
	fmt.Fprintf(w, "  listens\t%s, by %s, for NVMe hosts: any host that reaches it may connect with an NQN that is allowed\n", h.Listen, h.Device)
	fmt.Fprintf(w, "  serves\t%s, %d bytes, to %d hosts with %d queues\n", h.Subsystem, h.Size, h.Hosts, h.Queues)
	for _, nqn := range h.Subsystems {
		if nqn != h.Subsystem {
			fmt.Fprintf(w, "  serves\t%s, too\n", nqn)
		}
	}
	for i := range h.Namespaces {
		printNamespace(w, h, &h.Namespaces[i])
	}
	fmt.Fprintf(w, "  commands\t%s; bytes: %s; %d had to wait\n", nonzero(h.Commands), nonzero(h.Bytes), h.Waited)
	fmt.Fprintf(w, "  refused\tqueues: %s; %d queues broke the rules, or failed; %d hosts fell silent; %d queues of hosts that did not prove who they are; %d gave way\n", nonzero(h.Rejected), h.Ended, h.Expired, h.Unproven, h.GaveWay)
	for i := range h.Connected {
		c := &h.Connected[i]
		fmt.Fprintf(w, "  host\t%s: %d queues; commands: %s; bytes: %s\n", c.Name, c.Queues, nonzero(c.Commands), nonzero(c.Bytes))
	}
}

func printNamespace(w io.Writer, h *status.Hosts, n *status.Namespace) {
	var of, marks string
	if n.Subsystem != h.Subsystem {
		of = n.Subsystem + " "
	}
	if n.ReadOnly {
		marks += ", read-only"
	}
	if n.ANA != string(config.ANAOptimized) {
		marks += ", " + n.ANA
	}
	if n.Reservation != "" {
		marks += ", reserved (" + n.Reservation + ")"
	}
	if n.Leaving {
		marks += ", leaving: commands are still in flight"
	}
	fmt.Fprintf(w, "  namespace\t%s%d: %s, %d bytes%s; commands: %s; bytes: %s\n", of, n.ID, n.Path, n.Size, marks, nonzero(n.Commands), nonzero(n.Bytes))
}

// trust describes the protection of a connection.
func trust(tls bool) string {
	if tls {
		return "TLS"
	}
	return "plain TCP: any host that reaches it may connect, and hosts on the path can read and change the traffic"
}

// by adds how messages are transferred to a peer, once that is known.
func by(method string) string {
	if method == "" {
		return ""
	}
	return ", by " + method
}

// because appends a reason, if there is one.
func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// printRDMADevices prints how many queue pairs are open, and how much RoCE in software has copied.
func printRDMADevices(w io.Writer, all []status.RDMADevice) {
	for _, d := range all {
		fmt.Fprintf(w, "rdma\t%s: %d queue pairs open", d.Name, d.QueuePairs)
		if d.SentCopied != nil {
			fmt.Fprintf(w, "; %d bytes placed; copied to be sent: %s", d.Placed, nonzero(d.SentCopied))
		}
		fmt.Fprintln(w)
	}
}

// printGenerated prints the source that generates packets.
func printGenerated(w io.Writer, f *status.Flow) {
	g := f.Generated
	if g == nil {
		return
	}
	rate := "as many as are taken"
	if g.Rate > 0 {
		rate = fmt.Sprintf("%d a second", g.Rate)
	}
	fmt.Fprintf(w, "  generated\t%d packets of %d bytes (%s), %d waiting; lost: %s\n", f.Packets, g.Length, rate, f.Waiting, nonzero(f.Dropped))
}

// printDiscarded prints the sink that discards all packets.
func printDiscarded(w io.Writer, f *status.Flow) {
	if d := f.Discarded; d != nil {
		fmt.Fprintf(w, "  discarded\t%d %s, %d bytes\n", d.Packets, unitOf(f), d.Bytes)
	}
}

// printLevel prints the frames in flight of a flow.
func printLevel(w io.Writer, l *status.Watermarks) {
	if l == nil {
		return
	}
	fmt.Fprintf(w, "  in flight\t%d frames, at most %d", l.Held, l.Most)
	if l.High > 0 {
		fmt.Fprintf(w, "; with %d the source has to wait until there are %d: %d times, %v", l.High, l.Low, l.Pauses,
			time.Duration(l.Paused*float64(time.Second)).Round(time.Millisecond))
		if l.Pauses > 0 {
			fmt.Fprint(w, ". Its end was slower than its source")
		}
	}
	fmt.Fprintln(w)
}

// printTimes prints how long packets took.
func printTimes(w io.Writer, t *status.FrameTimes) {
	if t == nil {
		return
	}
	for _, one := range []struct {
		what string
		d    *latency.Distribution
	}{{"until submitted", t.Submitted}, {"until done", t.Done}} {
		if d := one.d; d != nil {
			fmt.Fprintf(w, "  %s\tmedian %s, 99 %% %s, 99.9 %% %s, at most %s\n", one.what, brief(d.P50), brief(d.P99), brief(d.P999), brief(d.Max))
		}
	}
}
