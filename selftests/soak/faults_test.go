package soak

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// fault is a fault that a test causes. begin starts it and mend repairs it. Afterwards everything
// must be as before.
type fault struct {
	name  string
	hits  []string // flows that the fault affects; the others must keep their rate
	begin func(*rig)
	mend  func(*rig)
	short bool // part of the short form
}

// spared returns the flows that the fault must not affect.
func (f *fault) spared() []string {
	return slices.DeleteFunc(slices.Clone(flowNames), func(name string) bool { return slices.Contains(f.hits, name) })
}

// faults returns all faults. A full disk affects the flow with files on it. A failing device
// affects the flow that writes to it.
func (r *rig) faults() []fault {
	full := fault{name: "full disk", hits: []string{"capture"}, begin: fillCapture, mend: emptyDisk, short: true}
	broken := fault{name: "disk with errors, of a log", hits: []string{"wal"}, begin: breakLog, mend: mendLog}
	if r.swapped {
		full = fault{name: "full disk, of a log", hits: []string{"wal"}, begin: fillLog, mend: emptyDisk, short: true}
		broken = fault{name: "disk with errors, of a capture", hits: []string{"capture"}, begin: breakCapture, mend: mendCapture, short: true}
	}
	return []fault{
		{name: "slow reader", begin: slowReader, mend: quickReader},
		{name: "dead peer", begin: killPeer, mend: reviveOther},
		{name: "frozen peer", begin: freezeOther, mend: thawOther},
		{name: "unplugged peer", begin: unplugOther, mend: plugOther},
		{name: "client that vanishes in a message", begin: vanishSending, mend: nothing, short: true},
		{name: "client that vanishes in a WRITE", begin: vanishReading, mend: nothing, short: true},
		{name: "unplugged clients", hits: []string{"wal", "blocks", "relay"}, begin: unplugSources, mend: plugSources},
		{name: "unplugged receivers", hits: []string{"feed", "relay"}, begin: unplugSinks, mend: plugSinks},
		{name: "log stopped and started", hits: []string{"wal"}, begin: stopLog, mend: startLog},
		full,
		broken,
		{name: "disk with errors, of blocks", hits: []string{"blocks"}, begin: breakBlocks, mend: mendBlocks},
	}
}

func nothing(*rig) {}

// slowReader slows the other peer of the feed. Its policy drops the oldest waiting packets.
func slowReader(r *rig) {
	before := r.otherOf("feed").Dropped["oldest"]
	r.other.tell(r.t, "slow", "feed")
	r.await("packets to be dropped for the slow reader", func() bool { return r.otherOf("feed").Dropped["oldest"] > before })
}

func quickReader(r *rig) {
	r.other.tell(r.t, "fast", "feed")
	r.await("the slow reader to have caught up", func() bool { p := r.otherOf("feed"); return p.Waiting == 0 && p.InFlight < 8 })
}

// otherOf returns a flow's status of its other peer.
func (r *rig) otherOf(flow string) status.Peer { return r.flow(flow).Sends.Peers[1] }

// killPeer kills the other peer of the feed and the relay.
func killPeer(r *rig) {
	r.other.fine(r.t)
	r.otherCame["feed"] += r.other.of("feed").Messages
	r.otherCame["relay"] += r.other.of("relay").Messages
	r.warned = len(r.daemon.Log.String())
	r.other.kill()
	for _, name := range []string{"feed", "relay"} {
		r.becomes(name, status.Waiting, "other", r.world.other.at(map[string]int{"feed": feedPort, "relay": passedPort}[name]))
	}
}

// reviveOther starts the other peer again. The daemon's log must have one warning about it from each flow.
func reviveOther(r *rig) {
	r.other = enter(r.t, &r.world.other, r.receivers(&r.world.other, true)...)
	r.running("feed", "relay")
	for _, name := range []string{"feed", "relay"} {
		n := 0
		for line := range strings.Lines(r.daemon.Log.String()[r.warned:]) {
			if says(line, []string{"level=WARN", "flow=" + name, r.world.other.ip}) {
				n++
			}
		}
		if n != 1 {
			r.t.Errorf("the log has %d warnings of %s that its peer is gone", n, name)
		}
	}
}

// vanishSending kills a client of the log in the middle of messages. The hub drops the last packet
// of each message.
func vanishSending(r *rig) {
	posted := r.flow("wal").Receives.Posted
	last := lastOfSend
	if r.method == "write" {
		last = lastOfWrite
	}
	stop := r.eat(r.t, &r.world.guest, last)
	defer stop()
	r.guests++
	g := enter(r.t, &r.world.guest, job{Name: "wal", Kind: "append", Address: r.world.daemon.at(walPort), Flow: "wal", Seed: guestSeed + r.guests,
		Size: mostMessage, Rate: 100, Depth: 16})
	r.await("the guest to be in the middle of a message", func() bool { return g.of("wal").Messages > 0 && r.flow("wal").Receives.Posted <= posted })
	time.Sleep(100 * time.Millisecond) // its first packets have arrived by then
	g.kill()
	if done := g.of("wal").Done; done > 0 {
		r.t.Errorf("%d messages were acknowledged whose ends were swallowed", done)
	}
}

// vanishReading kills a client that reads blocks in the middle of the answers. The hub drops the
// last packet of each answer.
func vanishReading(r *rig) {
	stop := r.eat(r.t, &r.world.guest, lastOfWrite)
	defer stop()
	served := r.flow("blocks").Blocks.Requests
	g := enter(r.t, &r.world.guest, job{Name: "blocks", Kind: "read", Address: r.world.daemon.at(blocksPort), Flow: "blocks", Seed: blocksSeed,
		Size: blockSize, Rate: 100, Depth: 4})
	r.await("the guest to be in the middle of a WRITE", func() bool {
		b := r.flow("blocks").Blocks
		return len(b.Clients) > 1 && slices.ContainsFunc(b.Clients, func(c status.Reader) bool { return c.Requests > c.Served && c.Requests <= 4 }) && b.Requests > served
	})
	time.Sleep(100 * time.Millisecond)
	g.kill()
	if n := g.of("blocks").Messages; n > 0 {
		r.t.Errorf("%d requests were answered whose ends were swallowed", n)
	}
}

func unplugOther(r *rig) { r.plug(r.t, &r.world.other, false) }
func plugOther(r *rig)   { r.plug(r.t, &r.world.other, true) }

func unplugSources(r *rig) { r.plug(r.t, &r.world.sources, false) }
func plugSources(r *rig)   { r.plug(r.t, &r.world.sources, true) }
func unplugSinks(r *rig)   { r.plug(r.t, &r.world.sinks, false) }
func plugSinks(r *rig)     { r.plug(r.t, &r.world.sinks, true) }

// freezeOther stops the other peer's process. The peer does nothing, but its connections stay.
func freezeOther(r *rig) { r.other.signal(r.t, unix.SIGSTOP) }
func thawOther(r *rig)   { r.other.signal(r.t, unix.SIGCONT) }

func stopLog(r *rig)  { r.control("stop", "wal") }
func startLog(r *rig) { r.control("start", "wal") }

// control starts or stops a flow.
func (r *rig) control(verb, flow string) {
	if said, err := r.daemon.Control(verb, flow); err != nil {
		r.t.Fatalf("%s %s: %v: %s", verb, flow, err, said)
	}
}

// fillDisk fills the file system of the files.
func fillDisk(r *rig) {
	testenv.Must(r.t, fill(filepath.Join(r.storage, "ballast")))
}

func fillCapture(r *rig) {
	fillDisk(r)
	r.becomes("capture", status.Waiting, "no space left", "make room")
}

func fillLog(r *rig) {
	fillDisk(r)
	r.becomes("wal", status.Waiting, "no space left", "make room", "clients wait")
}

func emptyDisk(r *rig) {
	testenv.Must(r.t, os.Remove(filepath.Join(r.storage, "ballast")))
}

// fill makes a file that takes all free space.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	end := int64(0)
	for size := int64(1 << 20); size >= 512; size /= 2 {
		for err == nil {
			if err = unix.Fallocate(int(f.Fd()), 0, end, size); err == nil {
				end += size
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
		err = nil
	}
	return nil
}

// breakLog makes writes to the log's device fail. The flow then says that a write or a flush failed:
// heads of segments, end markers and the manifest go through the page cache, whose errors a flush reports.
func breakLog(r *rig) {
	r.limitDevice("4096")
	r.becomes("wal", status.Failed, r.log, "input/output error", "start the flow again")
}

func mendLog(r *rig) {
	r.limitDevice("0")
	r.control("start", "wal")
}

// failed counts packets of failed runs of the capture, and of the time between two runs.
type failed struct {
	sent    uint64 // sent before the capture ran again
	durable uint64 // of those, how many the flow called durable
}

// breakCapture makes writes to the capture's device fail. The flow then says that a write or a flush
// failed: a capture has no manifest, but heads of segments and end markers go through the page cache,
// too.
func breakCapture(r *rig) {
	r.limitDevice("4096")
	r.becomes("capture", status.Failed, r.device, "input/output error", "start the flow again")
}

// mendCapture starts the capture again. Its counters restart, so failed keeps what was durable.
func mendCapture(r *rig) {
	f := r.flow("capture")
	r.failed.durable += f.Durable.Packets
	s := r.packets["capture"]
	r.failed.sent = s.halt()
	r.limitDevice("0")
	r.control("start", "capture")
	r.running("capture")
	r.packets["capture"] = s.again(r.t)
}

// limitDevice limits the memory of the device, which stores compressed data in memory; 0: no limit.
func (r *rig) limitDevice(bytes string) {
	testenv.Must(r.t, os.WriteFile("/sys/block/"+filepath.Base(r.device)+"/mem_limit", []byte(bytes), 0))
}

// breakBlocks truncates the file behind the device that serves blocks.
func breakBlocks(r *rig) {
	before := r.sources.of("blocks").Refused
	testenv.Must(r.t, os.Truncate(r.image, 0))
	r.await("requests to be refused", func() bool { return r.sources.of("blocks").Refused > before })
	if f := r.flow("blocks"); sum(f.DiskErrors) == 0 || f.Blocks.Refused["disk_error"] == 0 {
		r.t.Errorf("the status does not say that the disk fails: %+v, %v", f.Blocks, f.DiskErrors)
	}
}

func mendBlocks(r *rig) {
	serve(r.t, r.image)
	came := r.sources.of("blocks").Messages
	r.await("requests to be answered again", func() bool { return r.sources.of("blocks").Messages > came })
}
