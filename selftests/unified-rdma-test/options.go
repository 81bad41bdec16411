package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// options are the options of a command line.
type options struct {
	iface, device, disk, where string

	job
	peer                 string // the program on the other side; empty: ours
	port                 int    // TCP
	gid                  int    // index; -1: chosen
	mtu                  int
	tclass, sl           int // traffic class and service level
	qpTimeout            int // for an acknowledgement, 4.096 µs << it
	replyTimeout         time.Duration
	keep                 bool
	force                bool
	reserve              bool
	receive              int // packets; 0: the device's default
	json                 bool
	beyond               bool
	cert, key, authority string
}

const usage = `Usage: unified-rdma-test [OPTIONS] IFACE RDMA_DEV BLOCK_DEV server|ADDRESS

IFACE is the network interface of RDMA_DEV. RDMA_DEV is a device as rdma(8) names it, or
roce:IFACE: RoCE v2 in software, on any Ethernet interface that has an IP address. BLOCK_DEV
is the server's disk or file; it is - where none is needed: on the client, and for all tests
but storage. The client, started with the server's ADDRESS, says what is tested; the server
needs no options.

`

// noDisk is the BLOCK_DEV argument that means no disk.
const noDisk = "-"

func (o *options) server() bool { return o.where == "server" }

// parse parses the command line and returns mistakes as errors.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{job: job{Test: storageTest, Transport: rdma.RC, Op: "send", Inline: -1}, port: 18516, gid: -1, qpTimeout: 14, replyTimeout: 10 * time.Second}
	fs, err := harness.Parse("unified-rdma-test", usage, args, stderr, o.define)
	if err != nil {
		return o, err
	}
	if fs.NArg() != 4 {
		return o, fmt.Errorf("name IFACE, RDMA_DEV, BLOCK_DEV (or -) and server or the server's address, after the options: got %q (--help says more)", fs.Args())
	}
	o.iface, o.device, o.disk, o.where = fs.Arg(0), fs.Arg(1), fs.Arg(2), fs.Arg(3)
	return o, o.check(harness.Given(fs))
}

func (o *options) define(fs *flag.FlagSet) {
	harness.OneOf(fs, &o.Test, "test", "`WHAT` to do: "+strings.Join(tests, ", "), tests...)
	fs.TextVar(&o.Transport, "transport", o.Transport, "`TRANSPORT`: RC, UC or UD")
	harness.OneOf(fs, &o.Op, "op", "`OPERATION`: "+strings.Join(opNames(), ", "), opNames()...)
	fs.Uint64Var(&o.Size, "size", 0, "`BYTES` of a message (default: of storage and bandwidth 65536, of verify 4096, of latency 2, of atomics always 8)")
	fs.IntVar(&o.Count, "n", 0, "so many `MESSAGES` (default: of storage and verify 100, else 1000)")
	fs.IntVar(&o.Depth, "depth", 0, "so many `REQUESTS` at a time (default 128; of latency always 1)")
	fs.IntVar(&o.Inline, "inline", o.Inline, "send messages of up to so many `BYTES` inline (default: of latency 220, else 0)")
	fs.Uint64Var(&o.Seed, "seed", 1, "`NUMBER` that contents follow from")
	fs.BoolVar(&o.beyond, "beyond", false, "with -test verify: at the end ask for more than is allowed, which must be refused")
	fs.BoolVar(&o.Manager, "R", false, "connect the queue pairs through rdma_cm")
	harness.OneOf(fs, &o.peer, "peer", "the other side is a `PROGRAM` of rdma-core: "+strings.Join(peers, ", ")+"; -transport, -size and -n are to be as there", peers...)
	fs.IntVar(&o.port, "port", o.port, "TCP `PORT` of the server (with -peer pingpong 18515, with -peer rping 7174)")
	fs.IntVar(&o.gid, "gid", o.gid, "`INDEX` in the GID table of the device's port (default: a RoCE v2 address that fits the peer's)")
	fs.IntVar(&o.mtu, "mtu", 0, "path MTU of at most so many `BYTES` (default: what both ports take)")
	fs.IntVar(&o.tclass, "tclass", 0, "traffic `CLASS` of our packets, 0 to 255: four times the DSCP, as with --tclass of perftest")
	fs.IntVar(&o.sl, "sl", 0, "service `LEVEL` of our packets, 0 to 7: on a VLAN the priority of the tag, as with --sl of perftest; with -R it does not apply")
	fs.IntVar(&o.qpTimeout, "qp-timeout", o.qpTimeout, "send again what is not acknowledged within 4.096 µs << `N`")
	fs.DurationVar(&o.replyTimeout, "timeout", o.replyTimeout, "how `LONG` to wait for the peer before giving up")
	fs.BoolVar(&o.keep, "keep", false, "server: serve one client after the other, until it is ended")
	fs.BoolVar(&o.force, "force", false, "server: write over what is on the disk, also on a device in use")
	fs.BoolVar(&o.reserve, "reserve", false, harness.ReserveHelp)
	fs.IntVar(&o.receive, "receive", 0, "roce:IFACE: so many `PACKETS` may wait for this program on each queue, a power of two (default 2048), and a quarter as many for the card: UC and UD lose what is beyond")
	fs.BoolVar(&o.json, "json", false, "print JSON")
	fs.StringVar(&o.cert, "cert", "", "`FILE` with our certificate (PEM): connect with TLS 1.3 and know the peer")
	fs.StringVar(&o.key, "key", "", "`FILE` with its key")
	fs.StringVar(&o.authority, "ca", "", "`FILE` with the certificate that signed the peer's")
}

// check checks that the options fit each other and the device, and sets defaults that depend on others.
func (o *options) check(given map[string]bool) error {
	if err := o.checkTogether(given); err != nil {
		return err
	}
	return o.checkSoft()
}

func (o *options) checkTogether(given map[string]bool) error {
	if tls := []bool{o.cert != "", o.key != "", o.authority != ""}; tls[0] != tls[1] || tls[1] != tls[2] {
		return errors.New("-cert, -key and -ca go together")
	}
	if err := cmp.Or(harness.Within("qp-timeout", o.qpTimeout, 1, 31), harness.Within("tclass", o.tclass, 0, 255), harness.Within("sl", o.sl, 0, 7)); err != nil {
		return err
	}
	if o.Manager && o.sl != 0 {
		return errors.New("-sl does not go with -R: rdma_cm has only a type of service, which is -tclass")
	}
	if o.peer != "" {
		return o.checkPeer(given)
	}
	if o.server() {
		for _, name := range []string{"test", "transport", "op", "size", "n", "depth", "inline", "seed", "beyond", "R"} {
			if given[name] {
				return fmt.Errorf("-%s is the client's to say: give it there", name)
			}
		}
		return nil
	}
	if o.disk != noDisk && o.Test != storageTest {
		return fmt.Errorf("BLOCK_DEV %s: -test %s needs no disk; give - for it", o.disk, o.Test)
	}
	if o.beyond && o.Test != verifyTest {
		return fmt.Errorf("-beyond goes with -test %s", verifyTest)
	}
	o.fill(given["size"])
	return o.job.check()
}
