package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// classes: ibv_rc_pingpong has traffic class 0 and ours another, and each packet has that of its sender, as tshark reads
// them: data as well as ACKs.
func (b *bench) classes(t *testing.T) {
	const sniff = `tcpdump -U --immediate-mode -i %s -w %s udp port 4791 >/tmp/said 2>&1 & sniffer=$!
		until grep -q listening /tmp/said; do kill -0 $sniffer || { cat /tmp/said; exit 1; }; sleep 0.05; done
		%s; result=$?; sleep 0.5; kill $sniffer; wait $sniffer; cat /tmp/said; exit $result`
	p := program{"ibv_rc_pingpong", "-n 200", "-peer pingpong -transport RC -n 200 -tclass 72", false}
	const file = "/tmp/classes.pcap" // in the guest
	s := b.ours(t, limit, p.options(), "server")
	s.says(t, "waiting for")
	b.run(t, fmt.Sprintf(sniff, card, file, p.command(b, p.here(b))))
	s.ended(t)
	testenv.Tool(t, "tshark") // the guest has the programs of its host
	out := b.run(t, "tshark -r "+file+" -T fields -e ip.src -e ip.dsfield -e infiniband.bth.opcode 2>/dev/null")
	want := map[string]string{b.tap.PeerIP.String(): "0x00", b.tap.IP.String(): "0x48"}
	data, acks := map[string]int{}, map[string]int{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 3 || f[1] != want[f[0]] {
			t.Fatalf("tshark reads a packet as source, traffic class and opcode %q", f)
		}
		if f[2] == "17" {
			acks[f[0]]++
		} else {
			data[f[0]]++
		}
	}
	for ip := range want {
		if data[ip] < 200 || acks[ip] == 0 {
			t.Errorf("%v sent %d packets of data and %d ACKs", ip, data[ip], acks[ip])
		}
	}
}
