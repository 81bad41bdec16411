package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// rig is a daemon with all five flows, and the programs that send and receive its traffic.
type rig struct {
	*world
	form
	t         *testing.T
	daemon    *daemon.Daemon
	watch     *watch
	packets   map[string]*stream // by flow
	sources   *actor
	sinks     *actor
	other     *actor
	storage   string // directory of a small file system, for the capture; if swapped, for the log
	device    string // device of the log; if swapped, of the capture
	log       string // path of the log
	image     string // file behind the device that serves blocks
	captures  *captures
	records   *records
	failed    failed            // runs of the capture that failed
	guests    uint64            // guests so far
	warned    int               // length of the daemon's log when the other peer was killed
	otherCame map[string]uint64 // messages that earlier processes of the other peer received, by flow
}

// Ports of the flows and of the receivers.
const (
	walPort    = 7471
	blocksPort = 7472
	relayPort  = 7473
	feedPort   = 7481
	passedPort = 7482
)

// The traffic: rates a second, and sizes in bytes.
const (
	rate        = 200.0
	requestRate = 50.0 // of blocks, requested one at a time; a busy machine takes milliseconds for each
	packetSize  = 700
	messageSize = 1800 // two packets on the wire
	requestSize = 4096
	mostMessage = 3072
)

// Seeds of contents.
const (
	logSeed    = 1
	relaySeed  = 2
	blocksSeed = 3
	guestSeed  = 4
)

// Sizes of memory and storage, in bytes.
const (
	regionSize  = 96 << 20
	storageSize = 64 << 20
	deviceSize  = 96 << 20
	servedSize  = 16 << 20
)

// form says how messages are transferred and which disk each flow uses.
type form struct {
	name    string
	method  string // of messages from clients and to peers
	swapped bool   // the capture writes to the device, and the log to files
}

// forms are all forms. The soak uses the first.
var forms = []form{{name: "sent", method: "send"}, {name: "written", method: "write", swapped: true}}

const settings = `
region: {size: 96MiB, extent: 512KiB, extents: 16}
workers: [{name: main, wait: sleep, sleep: 1ms}]
flows:
  - name: capture
    from: {interface: captured, filter: "udp and dst port 5000", ring: 2048}
    to: {%[1]s}
  - name: wal
    from: {rdma: "roce:net", listen: %[2]q, clients: 4, window: 32, message: 3KiB, method: %[11]s}
    to: {%[3]s}
  - name: feed
    from: {interface: fed, filter: "udp and dst port 5000", ring: 2048}
    to: {rdma: "roce:net", queue: 256, peers: [{name: sink, address: %[4]q, flow: feed}, {name: other, address: %[5]q, flow: feed, policy: drop_oldest}]}
  - name: blocks
    from: {device: %[6]q}
    to: {rdma: "roce:net", listen: %[7]q, clients: 4, transfer: 4KiB}
  - name: relay
    from: {rdma: "roce:net", listen: %[8]q, clients: 4, window: 32, method: %[11]s}
    to: {rdma: "roce:net", acknowledge: any, queue: 256, peers: [{name: sink, address: %[9]q, flow: relay}, {name: other, address: %[10]q, flow: relay, policy: drop_oldest}]}
`

// flowNames are all flows of the rig.
var flowNames = []string{"capture", "wal", "feed", "blocks", "relay"}

// ends returns the targets of the capture and the log.
func (r *rig) ends() (capture, log string) {
	if r.swapped {
		return fmt.Sprintf("device: %q, layout: packed, segment: {size: 8MiB}", r.device),
			fmt.Sprintf("file: %q, segment: {size: 2MiB, keep: 8}, prepare: none", r.log)
	}
	return fmt.Sprintf("file: %q, layout: slot, segment: {size: 2MiB}, prepare: none", filepath.Join(r.storage, "capture")),
		fmt.Sprintf("device: %q, segment: {size: 8MiB}", r.log)
}

// newRig starts everything. It returns when all flows have traffic.
func newRig(t *testing.T, f form) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.HugePages(t, regionSize+8<<20)
	r := &rig{world: newWorld(t), form: f, t: t, packets: map[string]*stream{}, otherCame: map[string]uint64{}}
	r.storage, r.device = testenv.Ext4(t, storageSize), testenv.Zram(t, deviceSize)
	if r.log = r.device; f.swapped {
		r.log = filepath.Join(r.storage, "log")
	}
	r.image = served(t)
	w := r.world
	capture, log := r.ends()
	text := fmt.Sprintf(settings, capture, w.daemon.at(walPort), log, w.sinks.at(feedPort), w.other.at(feedPort),
		testenv.Loop(t, r.image, 0), w.daemon.at(blocksPort), w.daemon.at(relayPort), w.sinks.at(passedPort), w.other.at(passedPort), f.method)
	r.sinks, r.other = enter(t, &w.sinks, r.receivers(&w.sinks, false)...), enter(t, &w.other, r.receivers(&w.other, true)...)
	r.daemon = daemon.Launch(t, program, &testenv.End{Namespace: w.daemon.Namespace}, t.TempDir(), text)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", r.daemon.Log)
		}
	})
	r.daemon.Running(t)
	r.watch = newWatch(t, r.daemon)
	r.sources = enter(t, &w.sources,
		job{Name: "wal", Kind: "append", Address: w.daemon.at(walPort), Flow: "wal", Seed: logSeed, Size: messageSize, Rate: rate, Depth: 64},
		job{Name: "relay", Kind: "append", Address: w.daemon.at(relayPort), Flow: "relay", Seed: relaySeed, Size: messageSize, Rate: rate, Depth: 64},
		job{Name: "blocks", Kind: "read", Address: w.daemon.at(blocksPort), Flow: "blocks", Seed: blocksSeed, Size: requestSize, Rate: requestRate, Depth: 4})
	r.packets["capture"], r.packets["feed"] = newStream(t, &w.captured, rate), newStream(t, &w.fed, rate)
	r.captures, r.records = followCaptures(t, r.storage), followRecords(t, r.log)
	if f.swapped {
		r.captures.device = r.device
	}
	for _, name := range flowNames {
		r.await("traffic on "+name, func() bool { return r.came(name) >= 20 })
	}
	r.await("everybody to be connected", func() bool {
		s := r.status()
		return !slices.ContainsFunc(s.Flows, func(f status.Flow) bool { return !connected(&f) })
	})
	return r
}

// receivers returns the jobs that receive the messages of the feed and the relay.
func (r *rig) receivers(s *site, lossy bool) []job {
	return []job{
		{Name: "feed", Kind: "receive", Address: s.at(feedPort), Flow: "feed", Depth: 64, Packets: true, Lossy: lossy, Write: r.method == "write"},
		{Name: "relay", Kind: "receive", Address: s.at(passedPort), Flow: "relay", Depth: 64, Lossy: lossy, Write: r.method == "write"},
	}
}

// served makes the file that blocks are read from.
func served(t *testing.T) string {
	t.Helper()
	file := testenv.DiskFile(t, servedSize)
	serve(t, file)
	return file
}

// serve writes the content that the blocks flow serves.
func serve(t *testing.T, file string) {
	t.Helper()
	b := make([]byte, servedSize)
	for n := 0; n < servedSize/blockSize; n++ {
		harness.Fill(b[n*blockSize:(n+1)*blockSize], blocksSeed, uint64(n))
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	testenv.Must(t, err)
	f.Close()
}

// came returns how many packets, messages or requests of a flow have reached its far end.
func (r *rig) came(flow string) uint64 {
	switch flow {
	case "capture":
		return r.flow("capture").Written.Packets
	case "wal":
		return r.sources.of("wal").Done
	case "blocks":
		return r.sources.of("blocks").Messages
	}
	return r.sinks.of(flow).Messages
}

// flow returns the status of a flow.
func (r *rig) flow(name string) status.Flow { return flowOf(r.t, r.status(), name) }

func flowOf(t *testing.T, s status.Daemon, name string) status.Flow {
	t.Helper()
	for _, f := range s.Flows {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("there is no flow %s", name)
	return status.Flow{}
}

// status asks the daemon for its status. The daemon must run.
func (r *rig) status() status.Daemon {
	r.t.Helper()
	s, err := r.daemon.Status()
	if err != nil {
		r.t.Fatalf("status: %v\n%s", err, r.daemon.Log)
	}
	return s
}

// running waits until the flows are in the state running.
func (r *rig) running(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.becomes(name, status.Running)
	}
}

// becomes waits until a flow has that state and an error with all texts.
func (r *rig) becomes(name string, state status.State, texts ...string) status.Flow {
	r.t.Helper()
	var f status.Flow
	r.await(fmt.Sprintf("flow %s to be %s and to say %q", name, state, texts), func() bool {
		f = r.flow(name)
		return f.State == state && says(f.Error, texts)
	})
	return f
}

// await waits for a condition. It fails the test at once if another check has failed.
func (r *rig) await(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(testenv.Within(60 * time.Second)); !ok(); time.Sleep(20 * time.Millisecond) {
		if r.t.Failed() {
			r.t.FailNow()
		}
		if time.Now().After(end) {
			r.t.Fatalf("waited in vain for %s\nstatus %+v", what, r.status().Flows)
		}
	}
}

// leave ends everything in order: the senders, the flows, the receivers. It returns the last status.
func (r *rig) leave() status.Daemon {
	r.t.Helper()
	for _, s := range r.packets {
		s.halt()
	}
	r.sources.leave(r.t)
	r.settle()
	last := r.status()
	r.watch.halt()
	r.daemon.Terminate(r.t)
	r.sinks.leave(r.t)
	r.other.leave(r.t)
	r.account(last)
	if left := r.attached(r.t); left != "" {
		r.t.Errorf("programs are left behind: %s", left)
	}
	return last
}
