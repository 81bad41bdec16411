package roce

import (
	"strings"
	"testing"
)

var here = place{
	server: end{netns: "/run/netns/b", card: "b0", mac: "02:00:00:00:00:02", address: "10.0.0.2"},
	client: end{netns: "/run/netns/a", card: "a0", mac: "02:00:00:00:00:01", address: "10.0.0.1"},
}

// TestSameWork: the command lines ask for the same work.
func TestSameWork(t *testing.T) {
	latency := work{size: 64, count: 1000, seconds: 2}
	for _, c := range []struct {
		program        *program
		work           work
		server, client string
	}{
		{ours("p", "send"), latency, "p -receive 64 b0 roce:b0 - server", "p -receive 64 -mtu 4096 -qp-timeout 18 -test latency -op send -size 64 -n 1000 a0 roce:a0 - 10.0.0.2"},
		{ours("p", "write"), work{size: 65536, count: 500, bandwidth: true}, "p b0 roce:b0 - server",
			"p -mtu 4096 -qp-timeout 18 -test bandwidth -op write -size 65536 -n 500 a0 roce:a0 - 10.0.0.2"},
		{pingpong("c"), latency, "c b0 02:00:00:00:00:01 server 64 1000", "c a0 02:00:00:00:00:02 client 64 1000"},
		{sockperf(), latency, "sockperf server -i 10.0.0.2 -p 11111 --nonblocked", "sockperf ping-pong -i 10.0.0.2 -p 11111 --nonblocked -m 64 -t 2"},
		{perftest("send", "rxe0"), latency, "ib_send_lat -d rxe0 -x 1 -m 4096 -u 18 -s 64 -n 1000", "ib_send_lat -d rxe0 -x 1 -m 4096 -u 18 -s 64 -n 1000 10.0.0.2"},
		{perftest("write", "rxe0"), work{size: 65536, count: 500, bandwidth: true}, "ib_write_bw -d rxe0 -x 1 -m 4096 -u 18 -s 65536 -n 500",
			"ib_write_bw -d rxe0 -x 1 -m 4096 -u 18 -s 65536 -n 500 10.0.0.2"},
		{iperf3(), work{size: 1000, count: 3, bandwidth: true}, "iperf3 -s -1 -J", "iperf3 -c 10.0.0.2 -J -n 3000"},
	} {
		if got := strings.Join(c.program.server(here, c.work), " "); got != c.server {
			t.Errorf("server %q, want %q", got, c.server)
		}
		if got := strings.Join(c.program.client(here, c.work), " "); got != c.client {
			t.Errorf("client %q, want %q", got, c.client)
		}
	}
	if got := strings.Join(here.server.in([]string{"x", "y"}), " "); got != "nsenter --net=/run/netns/b -- x y" {
		t.Error(got)
	}
}
