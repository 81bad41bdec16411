package main

import (
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/xdp"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"-echo", "-queues", "3,0-1", "-zero-copy", "require", "-pages", "1g", "-to", "02:01:02:03:04:05", "eth0"}, io.Discard)
	if err == nil {
		t.Error("-to with -echo was taken")
	}
	o, err = parse([]string{"-ping", "-queues", "3,0-1", "-zero-copy", "require", "-pages", "1g", "-to", "02:01:02:03:04:05", "eth0"}, io.Discard)
	testenv.Must(t, err)
	if o.mode != ping || !slices.Equal(o.queues, numbers{0, 1, 3}) || xdp.Policy(o.policy) != xdp.Require || o.pages.String() != "1g" ||
		o.to != (address{2, 1, 2, 3, 4, 5}) || o.wait != waitPoll || o.expr == nil || o.iface != "eth0" {
		t.Errorf("%+v", o)
	}
	if o, err := parse([]string{"eth0"}, io.Discard); err != nil || o.mode != selfTest || o.ring != 256 {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := parse([]string{"-help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}

func TestParseMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"":                             "name one interface",
		"a b":                          "name one interface",
		"-rx -tx a":                    "different modes",
		"-rx -size 100 a":              "-size does nothing with -rx",
		"-tx -filter udp a":            "-filter does nothing",
		"-count 3 a":                   "self-test",
		"-frame 1000 a":                "2048 or 4096",
		"-tx -size 63 a":               "from 64",
		"-tx -size 4097 a":             "from 64",
		"-tx -frame 2048 -size 2049 a": "from 64",
		"-rx -wait long a":             "spin, sleep or poll",
		"-rx -queues 3-1 a":            "0,2-3",
		"-rx -queues 1,1 a":            "twice",
		"-rx -queues 1-4294967295 a":   "0,2-3",
		"-rx -queues x a":              "0,2-3",
		"-rx -zero-copy maybe a":       "require, prefer or copy",
		"-rx -pages 4k a":              "ordinary",
		"-tx -to 1:2 a":                "MAC",
		"-rx -filter udp&&( a":         "-filter",
		"-rx -sleep 0s a":              "-sleep",
		"-rx -duration -1s a":          "-duration",
		"-rx -busy-poll 2s a":          "-busy-poll",
		"-tx -rate -1 a":               "-rate",
		"-rx -ring 1000000 a":          "-ring",
		"-nonsense a":                  "unknown flag",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestPacket: an independent decoder reads the packet as compose wrote it.
func TestPacket(t *testing.T) {
	b := make([]byte, 300)
	to, from := address{2, 0, 0, 0, 0, 1}, address{2, 0, 0, 0, 0, 2}
	compose(b, to, from, 7)
	number(b, 1<<40, 99)
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
	if p.ErrorLayer() != nil {
		t.Fatal(p.ErrorLayer().Error())
	}
	udp := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	testenv.Must(t, udp.SetNetworkLayerForChecksum(p.NetworkLayer()))
	if err, bad := p.VerifyChecksums(); err != nil || len(bad) > 0 {
		t.Errorf("checksums: %v, %v", bad, err)
	}
	if udp.SrcPort != 49159 || udp.DstPort != 9 || len(udp.Payload) != 300-42 {
		t.Errorf("%+v", udp)
	}
	if s, stamp, ours := read(b); s != 1<<40 || stamp != 99 || !ours {
		t.Error(s, stamp, ours)
	}
	if _, _, ours := read(b[:63]); ours {
		t.Error("a short packet is ours")
	}
	want := slices.Concat(from[:], to[:], b[12:])
	turnRound(b)
	if d := cmp.Diff(want, b); d != "" {
		t.Error(d)
	}
	turnRound(b[:13])
	if d := cmp.Diff(want, b); d != "" {
		t.Error("half an Ethernet header was turned round")
	}
}

func TestBits(t *testing.T) {
	for v, want := range map[float64]string{0: "0 bit/s", 999: "999 bit/s", 1e3: "1.00 kbit/s", 2.5e6: "2.50 Mbit/s", 1e10: "10.00 Gbit/s"} {
		if got := bits(v); got != want {
			t.Errorf("%v: %s", v, got)
		}
	}
}
