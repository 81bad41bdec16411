package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
)

// fiveText is what a user would write: all five kinds of flows, over one region and one RDMA device, which is RoCE in software.
const fiveText = `# All five flows of unifiedd in one daemon: see docs/configuration.md.
region: {size: %[1]s}
control: {socket: %[2]q}
flows:
  - name: capture     # network to storage
    from: {interface: %[3]s, filter: "udp and dst port 5000", ring: 2048}
    to: {file: %[4]q, layout: slot, segment: {size: 64MiB}}
  - name: wal         # RDMA to storage
    from: {rdma: "roce:%[5]s", listen: %[6]q, clients: 4, window: 128}
    to: {file: %[7]q, layout: slot, segment: {size: 64MiB}}
  - name: feed        # network to RDMA
    from: {interface: %[8]s, filter: "udp and dst port 5000", ring: 2048}
    to: {rdma: "roce:%[5]s", peers: [{name: sink, address: %[9]q, flow: feed}]}
  - name: blocks      # storage to RDMA
    from: {file: %[10]q}
    to: {rdma: "roce:%[5]s", listen: %[11]q, clients: 4, transfer: 4KiB}
  - name: relay       # RDMA to RDMA
    from: {rdma: "roce:%[5]s", listen: %[12]q, clients: 4, window: 128}
    to: {rdma: "roce:%[5]s", peers: [{name: sink, address: %[13]q, flow: relay}]}
`

// The region of the five flows, and that of their peers.
const (
	fiveRegion = 160 * config.MiB
	peerRegion = 48 * config.MiB
)

// Where the flows listen, and their peers.
const (
	walPort    = 7471
	blocksPort = 7472
	relayPort  = 7473
	feedSink   = 7481
	relaySink  = 7482
)

// five is one run of all five flows.
type five struct {
	*stage
	daemon *daemon
	status flows.Status // when everything had come
	heard  map[string]heard
	files  map[string]heard // what was found on disk, by flow
}

// showFive runs the daemon with five flows, and the programs at their other ends.
func (s *stage) showFive(ctx context.Context) (f *five, err error) {
	fmt.Fprintf(s.Out, `
Now all five flows at once, in one daemon over one region of %v: it captures packets, sends others on over RDMA,
keeps a log for an RDMA client, serves blocks, and relays messages. RDMA is RoCE v2 in software, the disk a file.
`, config.Size(fiveRegion))
	f = &five{stage: s, heard: make(map[string]heard), files: make(map[string]heard)}
	if err := f.prepare(ctx); err != nil {
		return nil, err
	}
	if f.daemon, err = s.b.startDaemon(ctx, s.Options, f.path("five.yaml"), f.path("control.sock")); err != nil {
		return nil, err
	}
	err = f.talk(ctx)
	if err = errors.Join(err, f.daemon.stop()); err != nil {
		return nil, err
	}
	if err := errors.Join(s.b.detached(captured), s.b.detached(fed), s.b.detached(remote)); err != nil {
		return nil, err
	}
	fmt.Fprintln(s.Out, "  all five: sent, received and compared; reading the disk back")
	return f, f.readBack(ctx)
}

func (f *five) path(name string) string { return filepath.Join(f.dir, name) }

// prepare writes the configuration, and the blocks to be served.
func (f *five) prepare(ctx context.Context) error {
	text := fmt.Sprintf(fiveText, config.Size(fiveRegion), f.path("control.sock"), captured.name, f.path("five-capture"),
		remote.name, remote.at(receivingEnd, walPort), f.path("five-wal"), fed.name, remote.at(sendingEnd, feedSink),
		f.path("blocks"), remote.at(receivingEnd, blocksPort), remote.at(receivingEnd, relayPort), remote.at(sendingEnd, relaySink))
	if err := os.WriteFile(f.path("five.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	_, err := f.b.flowTest(ctx, f.FlowTest, "make", "-file", f.path("blocks"), "-size", "33554432", "-seed", blocksSeed)
	return err
}

// What the programs at the other ends send. Each has a seed of its own, so that nothing passes for another's.
const (
	walSeed, relaySeed, feedSeed, blocksSeed, captureSeed = "1", "2", "3", "4", "5"
	walSize, relaySize, feedSize, captureSize, blockSize  = "1000", "1800", "1000", "1400", "4096"
	packetRate                                            = 3000 // a second
	messageRate                                           = 2000
	blockRate                                             = 1000 // by the time there is: they come as fast as they can
	patience                                              = "4s" // when no packet comes any more
)

// DefaultTime is how long the five flows are sent to.
const DefaultTime = 20 * time.Second

// many is how many there are at a rate.
func (f *five) many(rate int) uint64 { return uint64(f.Time.Seconds() * float64(rate)) }

// during are options for so many at a rate.
func (f *five) during(rate int) []string {
	return []string{"-count", strconv.FormatUint(f.many(rate), 10), "-rate", strconv.Itoa(rate)}
}

// talk runs the other ends of all flows, in one process over one RDMA device, and asks the daemon how it is when they are done.
func (f *five) talk(ctx context.Context) error {
	said, err := f.a.flowTest(ctx, f.FlowTest, f.commands()...)
	if err != nil {
		return errors.Join(err, f.daemon.trouble())
	}
	for i, name := range []string{"wal", "relay", "feed", "relayed", "blocks", "fed", "sent"} {
		f.heard[name] = said[i]
	}
	await(ctx, 5*time.Second, func() bool {
		f.status, err = f.daemon.status(ctx)
		return err != nil || f.flow("capture").Packets >= f.many(packetRate)
	})
	return err
}

// commands are the other ends, all at the same time.
func (f *five) commands() []string {
	device := []string{"-device", "roce:" + remote.name, "-memory", strconv.Itoa(int(peerRegion)), "-receive-ring", "1024"}
	messages, packets := f.during(messageRate), f.during(packetRate)
	all := slices.Concat([]string{"append", "-to", remote.at(receivingEnd, walPort), "-flow", "wal", "-seed", walSeed, "-size", walSize}, device, messages)
	for _, c := range [][]string{
		slices.Concat([]string{"append", "-to", remote.at(receivingEnd, relayPort), "-flow", "relay", "-seed", relaySeed, "-size", relaySize}, messages),
		{"receive", "-listen", remote.at(sendingEnd, feedSink), "-flow", "feed", "-packets", "-seed", feedSeed, "-idle", patience},
		{"receive", "-listen", remote.at(sendingEnd, relaySink), "-flow", "relay", "-seed", relaySeed, messages[0], messages[1]},
		{"read", "-from", remote.at(receivingEnd, blocksPort), "-flow", "blocks", "-seed", blocksSeed, "-size", blockSize, "-count", strconv.FormatUint(f.many(blockRate), 10), "-depth", "4"},
		slices.Concat([]string{"send", "-to", fed.at(receivingEnd, port), "-seed", feedSeed, "-size", feedSize}, packets),
		slices.Concat([]string{"send", "-to", captured.at(receivingEnd, port), "-seed", captureSeed, "-size", captureSize}, packets),
	} {
		all = append(append(all, "+"), c...)
	}
	return all
}

// flow is the status of a flow.
func (f *five) flow(name string) flows.FlowStatus {
	for _, one := range f.status.Flows {
		if one.Name == name {
			return one
		}
	}
	return flows.FlowStatus{}
}

// readBack compares what is on disk.
func (f *five) readBack(ctx context.Context) error {
	for name, line := range map[string][]string{
		"wal":     {"log", "-file", f.path("five-wal"), "-seed", walSeed, "-count", strconv.FormatUint(f.many(messageRate), 10)},
		"capture": {"packets", "-file", f.path("five-capture"), "-seed", captureSeed},
	} {
		said, err := f.b.flowTest(ctx, f.FlowTest, line...)
		if err != nil {
			return err
		}
		f.files[name] = said[0]
	}
	return nil
}
