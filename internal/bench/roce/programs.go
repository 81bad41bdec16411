package roce

import (
	"strconv"
	"strings"
)

// The path MTU, and the MTU of the link, so that a packet of any program holds 4 KiB.
const (
	pathMTU = 4096
	linkMTU = 4200
)

// frameMTU is the MTU of a link whose packets fit a frame.
const frameMTU = 2200

// depth is how many messages of unified-rdma-test are in flight in a bandwidth test: its default.
const depth = 128

// ring is how many frames wait for packets in a latency test: as many as xsk-pingpong has. The more frames
// there are, the longer ago each was in a cache.
const ring = 64

// maxWait is the timeout after which ours and perftest send again, 4.096 µs << maxWait. Two guests on a
// machine are so slow that shorter ones would expire without a loss.
const maxWait = 18

// ours is unified-rdma-test.
func ours(path, op string) *program {
	begin := func(e end, w work) []string {
		if w.bandwidth || !strings.HasPrefix(e.device, "roce:") {
			return []string{path}
		}
		return []string{path, "-receive", strconv.Itoa(ring)}
	}
	return &program{name: strings.ToUpper(op), op: op, protocol: "tcp", port: 18516, mtu: frameMTU,
		server: func(p place, w work) []string {
			return append(begin(p.server, w), p.server.card, p.server.device, "-", "server")
		},
		client: func(p place, w work) []string {
			test := "latency"
			if w.bandwidth {
				test = "bandwidth"
			}
			args := append(begin(p.client, w), "-mtu", strconv.Itoa(p.pathMTU), "-qp-timeout", strconv.Itoa(maxWait), "-test", test, "-op", op, "-n", strconv.Itoa(w.count))
			if op != fetchAdd {
				args = append(args, "-size", strconv.Itoa(w.size))
			}
			return append(args, p.client.card, p.client.device, "-", p.server.address)
		},
		read: readTable}
}

// fetchAdd is the operation for which perftest has another name. Its size is always 8.
const fetchAdd = "fetch-add"

// pingpong is xsk-pingpong.
func pingpong(path string) *program {
	args := func(e, peer end, role string, w work) []string {
		return []string{path, e.card, peer.mac, role, strconv.Itoa(w.size), strconv.Itoa(w.count)}
	}
	return &program{name: "xsk-pingpong",
		server: func(p place, w work) []string { return args(p.server, p.client, "server", w) },
		client: func(p place, w work) []string { return args(p.client, p.server, "client", w) },
		read:   readTable}
}

// sockperf bounces UDP messages.
func sockperf() *program {
	const port = 11111
	args := func(role string, p place) []string {
		return []string{"sockperf", role, "-i", p.server.address, "-p", strconv.Itoa(port), "--nonblocked"}
	}
	return &program{name: "sockperf", protocol: "udp", port: port, endless: true,
		server: func(p place, _ work) []string { return args("server", p) },
		client: func(p place, w work) []string {
			return append(args("ping-pong", p), "-m", strconv.Itoa(w.size), "-t", strconv.Itoa(w.seconds))
		},
		read: readSockperf}
}

// iperf3 moves bytes over one TCP stream.
func iperf3() *program {
	return &program{name: "iperf3", protocol: "tcp", port: 5201,
		server: func(place, work) []string { return []string{"iperf3", "-s", "-1", "-J"} },
		client: func(p place, w work) []string {
			return []string{"iperf3", "-c", p.server.address, "-J", "-n", strconv.Itoa(w.bytes())}
		},
		read: readIperf}
}

// perftest is the program of perftest that does an operation over a Soft-RoCE device.
func perftest(op, device string) *program {
	args := func(p place, w work) []string {
		name := "ib_" + strings.Replace(op, fetchAdd, "atomic", 1) + "_lat"
		if w.bandwidth {
			name = "ib_" + op + "_bw"
		}
		args := []string{name, "-d", device, "-x", "1", "-m", strconv.Itoa(p.pathMTU), "-u", strconv.Itoa(maxWait), "-n", strconv.Itoa(w.count)}
		if op != fetchAdd {
			args = append(args, "-s", strconv.Itoa(w.size))
		}
		return args
	}
	return &program{name: "perftest", op: op, protocol: "tcp", port: 18515, mtu: linkMTU,
		server: args,
		client: func(p place, w work) []string { return append(args(p, w), p.server.address) },
		read:   readTable}
}
