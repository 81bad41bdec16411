package flow

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAgainstIdle measures what a daemon costs while nothing happens, in percent of a processor.
func TestAgainstIdle(t *testing.T) {
	b := newBed(t, "cmd/unifiedd")
	links := b.links(5)
	for _, name := range []string{"image", "disk"} {
		b.must(os.WriteFile(filepath.Join(b.dir, name), make([]byte, 16<<20), 0o600))
	}
	capture := func(name, iface, port, more string) string {
		return fmt.Sprintf("  - {name: %s, from: {interface: %s, filter: udp dst port %s%s}, to: {file: %s/%[1]s, segment: {size: 8MiB}, prepare: none}}\n", name, iface, port, more, b.dir)
	}
	taken, copied := capture("taken", links[0], "5000", ", ring: 128"), capture("copied", links[1], "5000", ", engine: packet, buffer: 2MiB")
	rdma := fmt.Sprintf(`"roce:%s", listen: "%s`, b.pair.B.Ifname, b.pair.B.IP)
	log := fmt.Sprintf("  - {name: log, from: {rdma: %s:7471\", clients: 2, window: 16}, to: {file: %s/log, segment: {size: 8MiB}}}\n", rdma, b.dir)
	blocks := fmt.Sprintf("  - {name: blocks, from: {file: %s/image}, to: {rdma: %s:7472\", clients: 2, cache: 2MiB}}\n", b.dir, rdma)
	nvme := fmt.Sprintf("  - {name: nvme, from: {file: %s/disk}, to: {rdma: %s:4420\", subsystem: nqn.2026-11.net.example:idle, allow_any_host: true}}\n", b.dir, rdma)
	var fifty strings.Builder
	for i := range 50 {
		fifty.WriteString(capture(fmt.Sprint("c", i), links[i%len(links)], fmt.Sprint(6000+i), ", ring: 128"))
	}
	for _, one := range []struct{ name, flows string }{
		{"a capture by AF_XDP", taken}, {"a capture by packet socket", copied}, {"a log", log}, {"blocks", blocks}, {"an NVMe target", nvme},
		{"these five", taken + copied + log + blocks + nvme}, {"50 captures by AF_XDP", fifty.String()},
	} {
		d := b.launch(&b.pair.B, "region: {size: 192MiB, extent: 256KiB, pages: ordinary}\nflows:\n"+one.flows)
		s, err := d.status()
		b.must(err)
		time.Sleep(2 * b.form.Span) // what opening has caused
		first, err := spent(s.PID)
		b.must(err)
		began := time.Now()
		time.Sleep(20 * b.form.Span)
		last, err := spent(s.PID)
		b.must(err)
		t.Logf("%-28s %.2f %% of a processor", one.name, 100*float64(last-first)/float64(time.Since(began)))
		b.must(d.stop())
	}
}

// links makes pairs of interfaces between the ends, and returns the names of those at end B.
func (b *bed) links(n int) (names []string) {
	b.Helper()
	for i := range n {
		near, far := fmt.Sprintf("%s-%d", b.pair.A.Ifname, i), fmt.Sprintf("%s-%d", b.pair.B.Ifname, i)
		b.pair.A.Run(b.T, "ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", b.pair.B.Name)
		b.pair.A.Run(b.T, "ip", "link", "set", near, "up")
		b.pair.B.Run(b.T, "ip", "link", "set", far, "up")
		names = append(names, far)
	}
	return names
}
