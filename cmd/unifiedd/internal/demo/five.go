package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

// fiveText is a configuration as a user would write it: all five kinds of flows, over one region
// and one RDMA device.
const fiveText = `# All five flows of unifiedd in one daemon: see docs/reference/configuration.md.
region: {size: %[1]s, reserve: true%[15]s}
control: {socket: %[2]q}
flows:
  - name: capture     # network to storage
    from: {interface: %[3]s, filter: "udp and dst port 5000", ring: %[4]d}
    to: {%[5]s, layout: slot, segment: {size: 64MiB}}
  - name: wal         # RDMA to storage
    from: {rdma: %[6]q, listen: %[7]q, clients: 4, window: 128}
    to: {%[8]s, layout: slot, segment: {size: 64MiB}}
  - name: feed        # network to RDMA
    from: {interface: %[9]s, filter: "udp and dst port 5000", ring: %[4]d}
    to: {rdma: %[6]q, peers: [{name: sink, address: %[10]q, flow: feed}]}
  - name: blocks      # storage to RDMA
    from: {%[11]s}
    to: {rdma: %[6]q, listen: %[12]q, clients: 4, transfer: 4KiB}
  - name: relay       # RDMA to RDMA
    from: {rdma: %[6]q, listen: %[13]q, clients: 4, window: 128}
    to: {rdma: %[6]q, peers: [{name: sink, address: %[14]q, flow: relay}]}
`

// The sizes of the region of the five flows, and of the region of their peers.
const (
	fiveRegion = 160 * config.MiB
	peerRegion = 48 * config.MiB
)

// The ports on which the flows and their peers listen.
const (
	walPort    = 7471
	blocksPort = 7472
	relayPort  = 7473
	feedSink   = 7481
	relaySink  = 7482
)

// five is one run of all five flows.
type five struct {
	Options
	Place
	daemon *daemon
	status status.Daemon // when everything had arrived
	heard  map[string]heard
	files  map[string]heard // contents on disk, by flow
}

// showFive runs the daemon with five flows, and the programs at their remote ends.
func (s *stage) showFive(ctx context.Context) (*five, error) {
	fmt.Fprintf(s.Out, `
Now all five flows at once, in one daemon over one region of %v: it captures packets, sends others on over RDMA,
keeps a log for an RDMA client, serves blocks, and relays messages. RDMA is RoCE v2 in software, the disk a file.
`, config.Size(fiveRegion))
	f, err := s.Options.runFive(ctx, s.place())
	if err != nil {
		return nil, err
	}
	return f, errors.Join(s.b.detached(captured), s.b.detached(fed), s.b.detached(remote))
}

// Five runs the five flows at a place and prints the table. It returns the daemon's status after
// everything had arrived. The error says which flow failed or whose numbers do not add up.
func Five(ctx context.Context, o Options, p Place) (status.Daemon, error) {
	f, err := o.runFive(ctx, p)
	if err != nil {
		return status.Daemon{}, err
	}
	if err := f.table(o.Out); err != nil {
		return f.status, err
	}
	return f.status, errors.Join(f.problems()...)
}

// runFive runs the daemon and the programs, and reads back the data on disk.
func (o Options) runFive(ctx context.Context, p Place) (f *five, err error) {
	f = &five{Options: o, Place: p, heard: make(map[string]heard), files: make(map[string]heard)}
	if err := f.prepare(ctx); err != nil {
		return nil, err
	}
	if f.daemon, err = f.startDaemon(ctx); err != nil {
		return nil, err
	}
	err = f.talk(ctx)
	if err = errors.Join(err, f.daemon.stop()); err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Out, "  all five: sent, received and compared; reading the disk back")
	return f, f.readBack(ctx)
}

// startDaemon starts the daemon in its namespace.
func (f *five) startDaemon(ctx context.Context) (d *daemon, err error) {
	if f.Unifiedd == "" {
		if f.Unifiedd, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return startDaemon(ctx, f.Unifiedd, f.Daemon, f.path("five.yaml"), f.path("control.sock"))
}

func (f *five) path(name string) string { return filepath.Join(f.Files, name) }

// at returns the address of a port of the daemon, peerAt that of a port of the programs.
func (p *Place) at(port int) string     { return net.JoinHostPort(p.Host, strconv.Itoa(port)) }
func (p *Place) peerAt(port int) string { return net.JoinHostPort(p.PeerHost, strconv.Itoa(port)) }

// prepare writes the configuration, and the blocks to serve.
func (f *five) prepare(ctx context.Context) error {
	on := ""
	if f.RegionDevice != "" {
		on = ", device: " + f.RegionDevice
	}
	text := fmt.Sprintf(fiveText, f.Region, f.path("control.sock"), f.Captured, f.Ring, f.Capture.Flow, f.Device, f.at(walPort), f.WAL.Flow,
		f.Fed, f.peerAt(feedSink), f.Blocks.Flow, f.at(blocksPort), f.at(relayPort), f.peerAt(relaySink), on)
	if err := os.WriteFile(f.path("five.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	_, err := runFlowTest(ctx, f.FlowTest, f.Daemon, "make", "-file", f.Blocks.Path, "-size", strconv.FormatUint(f.BlockBytes, 10), "-seed", blocksSeed)
	return err
}

// The seeds of the peers' messages. Each peer has its own, so that no peer's messages equal
// another's.
const (
	walSeed, relaySeed, feedSeed, blocksSeed, captureSeed = "1", "2", "3", "4", "5"
	walSize, relaySize, feedSize, captureSize, blockSize  = "1000", "1800", "1000", "1400", "4096"
)

// DefaultTime is how long the programs send to the five flows.
const DefaultTime = 20 * time.Second

// many returns the number of messages at a rate.
func (f *five) many(rate int) uint64 { return uint64(f.Time.Seconds() * float64(rate)) }

// during returns the options for a count of messages at a rate.
func (f *five) during(rate int) []string {
	return []string{"-count", strconv.FormatUint(f.many(rate), 10), "-rate", strconv.Itoa(rate)}
}

// talk runs the remote ends of all flows, those over RDMA in one process with one device. When they
// are done, it reads the daemon's status.
func (f *five) talk(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var said []heard
	ended := make(chan error, 1)
	go func() {
		var err error
		if said, err = runFlowTest(ctx, f.FlowTest, f.Programs, f.commands()...); err != nil {
			fail(err)
		}
		ended <- err
	}()
	sent, err := f.send(ctx)
	if err != nil {
		fail(err)
	}
	if err := errors.Join(err, <-ended); err != nil {
		return errors.Join(err, f.daemon.trouble())
	}
	for i, name := range []string{"wal", "relay", "feed", "relayed", "blocks"} {
		f.heard[name] = said[i]
	}
	f.heard["fed"], f.heard["sent"] = sent[0], sent[1]
	await(ctx, 5*time.Second, func() bool {
		f.status, err = f.daemon.status(ctx)
		return err != nil || f.flow("capture").Packets >= f.many(f.PacketRate)
	})
	return err
}

// takesPackets reports whether the demo may send packets to a flow: a flow that forwards them must
// have found its peer.
func takesPackets(f *status.Flow) bool {
	return f.State == status.Running || f.State == status.Waiting && !strings.HasPrefix(f.Kind, "network-")
}

// send sends packets to both flows that accept packets.
func (f *five) send(ctx context.Context) ([]heard, error) {
	if err := f.daemon.ready(ctx, takesPackets); err != nil {
		return nil, err
	}
	packets := f.during(f.PacketRate)
	return runFlowTest(ctx, f.FlowTest, f.Senders, slices.Concat([]string{"send", "-to", f.FedAt, "-seed", feedSeed, "-size", feedSize}, packets,
		[]string{"+", "send", "-to", f.CapturedAt, "-seed", captureSeed, "-size", captureSize}, packets)...)
}

// commands returns the commands of the remote ends over RDMA, which all run at the same time.
func (f *five) commands() []string {
	device := []string{"-device", f.PeerDevice, "-memory", strconv.FormatUint(uint64(f.PeerRegion), 10), "-receive-ring", "1024", "-reserve"}
	messages := f.during(f.MessageRate)
	all := slices.Concat([]string{"append", "-to", f.at(walPort), "-flow", "wal", "-seed", walSeed, "-size", walSize}, device, messages)
	for _, c := range [][]string{
		slices.Concat([]string{"append", "-to", f.at(relayPort), "-flow", "relay", "-seed", relaySeed, "-size", relaySize}, messages),
		{"receive", "-listen", f.peerAt(feedSink), "-flow", "feed", "-packets", "-seed", feedSeed, "-count", strconv.FormatUint(f.many(f.PacketRate), 10), "-idle", f.IdleTimeout},
		{"receive", "-listen", f.peerAt(relaySink), "-flow", "relay", "-seed", relaySeed, messages[0], messages[1]},
		{"read", "-from", f.at(blocksPort), "-flow", "blocks", "-seed", blocksSeed, "-size", blockSize, "-count", strconv.FormatUint(f.many(f.BlockRate), 10), "-depth", "4",
			"-within", strconv.FormatUint(f.BlockBytes, 10)},
	} {
		all = append(append(all, "+"), c...)
	}
	return all
}

// flow returns the status of a flow.
func (f *five) flow(name string) status.Flow {
	for _, one := range f.status.Flows {
		if one.Name == name {
			return one
		}
	}
	return status.Flow{}
}

// readBack verifies the data on disk. It exports the packets of a ring first.
func (f *five) readBack(ctx context.Context) error {
	capture := f.Capture.Path
	if f.Capture.Ring {
		capture = f.path("exported")
		if _, err := runProgram(ctx, f.Unifiedd, "export", "-r", f.Capture.Path, "-w", capture+".pcapng"); err != nil {
			return err
		}
	}
	for name, line := range map[string][]string{
		"wal":     {"log", "-file", f.WAL.Path, "-seed", walSeed, "-count", strconv.FormatUint(f.many(f.MessageRate), 10)},
		"capture": {"packets", "-file", capture, "-seed", captureSeed},
	} {
		said, err := runFlowTest(ctx, f.FlowTest, f.Daemon, line...)
		if err != nil {
			return err
		}
		f.files[name] = said[0]
	}
	return nil
}
