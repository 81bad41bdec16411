package flows

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDefaultsStart: flows of every kind start with only the settings that have no default, in a region that
// is as large as they need. The short form has one flow of each kind.
func TestDefaultsStart(t *testing.T) {
	l := newRDMALab(t)
	_, side := l.side(t)
	s := l.newStation(t)
	sink := s.newCollector(t, "127.0.0.1:0")
	image := l.dir + "/image"
	empty := l.dir + "/empty.pcap"
	for name, b := range map[string][]byte{image: make([]byte, 8<<20), empty: binary.LittleEndian.AppendUint32([]byte("\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00"), 1)} {
		testenv.Must(t, os.WriteFile(name, b, 0o600))
	}
	roce := fmt.Sprintf(`rdma: "roce:%s", listen: "%s:`, l.B.Ifname, l.B.IP)
	peers := fmt.Sprintf(`{rdma: "roce:%s", peers: [{name: a, address: "%s"}]}`, l.B.Ifname, sink.address())
	kinds := map[string]bool{}
	for name, ends := range map[string]string{
		"log":        fmt.Sprintf(`from: {%s7471"}, to: {file: %s/wal}`, roce, l.dir),
		"slot log":   fmt.Sprintf(`from: {%s7471"}, to: {file: %s/slots, layout: slot}`, roce, l.dir),
		"long":       fmt.Sprintf(`from: {%s7471", message: 64KiB}, to: {file: %s/long}`, roce, l.dir),
		"blocks":     fmt.Sprintf(`from: {file: %s}, to: {%s7471"}`, image, roce),
		"cache":      fmt.Sprintf(`from: {file: %s}, to: {%s7471", cache: 64MiB}`, image, roce),
		"NVMe":       fmt.Sprintf(`from: {file: %s}, to: {%s4420", subsystem: nqn.2026-11.example:disk, allow_any_host: true}`, image, roce),
		"relay":      fmt.Sprintf(`from: {%s7471"}, to: %s`, roce, peers),
		"generated":  fmt.Sprintf(`from: {generate: 64}, to: {file: %s/made}`, l.dir),
		"to peers":   `from: {generate: 64, rate: 10}, to: ` + peers,
		"counted":    `from: {generate: 64, rate: 10}, to: {discard: true}`,
		"to nowhere": fmt.Sprintf(`from: {%s7471"}, to: {discard: true}`, roce),
		"long relay": fmt.Sprintf(`from: {%s7471", message: 64KiB}, to: %s`, roce, peers),
		"capture":    fmt.Sprintf(`from: {interface: %s}, to: {file: %s/cap}`, l.B.Ifname, l.dir),
		"slots":      fmt.Sprintf(`from: {interface: %s}, to: {file: %s/capslot, layout: slot}`, l.B.Ifname, l.dir),
		"replay":     fmt.Sprintf(`from: {file: %s}, to: {interface: %s}`, empty, l.B.Ifname),
		"feed":       fmt.Sprintf(`from: {interface: %s}, to: %s`, side.Ifname, peers),
		"captured":   fmt.Sprintf(`from: {interface: %s}, to: {discard: true}`, l.B.Ifname),
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "slot log", "long", "cache", "long relay", "slots":
				testenv.Long(t, "each form fills another 256 MiB; TestNeeds has their extents")
			}
			text := "region: {pages: ordinary}\nflows:\n  - {name: f, " + ends + "}\n"
			d := l.open(t, text, Options{})
			l.begin(t, d.Start)
			kinds[d.Flows()[0].Status().Kind] = true
		})
	}
	if len(kinds) != 12 {
		t.Errorf("of 12 kinds of flows there are: %v", kinds)
	}
}

// TestNeeds: flows start with as many extents as Needs says. The configuration is refused with one less.
func TestNeeds(t *testing.T) {
	l := newRDMALab(t)
	image := l.dir + "/image"
	testenv.Must(t, os.WriteFile(image, make([]byte, 8<<20), 0o600))
	roce := fmt.Sprintf(`rdma: "roce:%s", listen: "%s:`, l.B.Ifname, l.B.IP)
	for name, ends := range map[string]string{
		"long":            fmt.Sprintf(`from: {%s7471", message: 64KiB, clients: 5}, to: {file: %s/long}`, roce, l.dir),
		"long slots":      fmt.Sprintf(`from: {%s7471", message: 64KiB, clients: 5}, to: {file: %s/slots, layout: slot}`, roce, l.dir),
		"blocks":          fmt.Sprintf(`from: {file: %s}, to: {%s7471", clients: 3, window: 7}`, image, roce),
		"short":           fmt.Sprintf(`from: {file: %s}, to: {%s7471", clients: 3, transfer: 4KiB}`, image, roce),
		"cache":           fmt.Sprintf(`from: {file: %s}, to: {%s7471", clients: 40, transfer: 3MiB, cache: 10MiB}`, image, roce),
		"NVMe":            fmt.Sprintf(`from: {file: %s}, to: {%s4420", clients: 5, subsystem: nqn.2026-11.example:disk, allow_any_host: true}`, image, roce),
		"long to nowhere": fmt.Sprintf(`from: {%s7471", message: 64KiB, clients: 3}, to: {discard: true}`, roce),
	} {
		t.Run(name, func(t *testing.T) {
			text := "region: {pages: ordinary, size: 512MiB, extents: %d}\nflows:\n  - {name: f, " + ends + "}\n"
			need := max(1, l.parsed(t, fmt.Sprintf(text, 0)).Flows[0].Needs(&config.Default().Region).Extents)
			d := l.open(t, fmt.Sprintf(text, need), Options{})
			l.begin(t, d.Start)
			if need == 1 {
				return
			}
			if _, err := config.Parse("test.yaml", fmt.Appendf(nil, text, need-1), config.Options{}); err == nil || !strings.Contains(err.Error(), "extents are too few") {
				t.Errorf("with %d extents and not %d: %v", need-1, need, err)
			}
		})
	}
}

// TestGrantBytes: package config uses the same length for a receiver's longest message as package protocol.
func TestGrantBytes(t *testing.T) {
	for _, frame := range []int{2048, 4096} {
		region := config.Region{Frame: frame, Extent: config.MiB}
		f := config.NewFlowOf(config.KindNullRDMA, "f")
		f.From.Generate, f.To.RDMA, f.To.Queue, f.To.Peers = 64, "mlx5_0", 64, []config.Peer{{}}
		each := frame / protocol.MaxGrantLen
		if got, want := f.Needs(&region).Own, 64*protocol.HeaderLen/frame+(64+each-1)/each; got != want {
			t.Errorf("a sender takes %d frames of %d; the configuration says %d", want, frame, got)
		}
	}
}

// TestExtentsBesideOthers: the default number of extents is enough for a flow that needs some, beside more flows that need
// none than there are extents.
func TestExtentsBesideOthers(t *testing.T) {
	dir := testenv.DiskDir(t)
	var text strings.Builder
	text.WriteString("region: {size: 64MiB, pages: ordinary}\nflows:\n")
	for i := range 20 {
		fmt.Fprintf(&text, "  - {name: f%d, from: {generate: 64, rate: 1}, to: {discard: true}}\n", i)
	}
	fmt.Fprintf(&text, "  - {name: file, from: {generate: 64, rate: 1}, to: {file: %s/f, segment: {size: 8MiB}, prepare: none}}\n", dir)
	c, err := config.Parse("test.yaml", []byte(text.String()), config.Options{})
	testenv.Must(t, err)
	d, err := Open(c, Options{Log: slog.New(slog.DiscardHandler)})
	testenv.Must(t, err)
	defer func() { testenv.Check(t, d.Close()) }()
	testenv.Must(t, d.Start())
}
