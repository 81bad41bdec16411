package filter

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

var byValue = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func TestTuples(t *testing.T) {
	ten, one := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.1/32")
	for text, want := range map[string][]Tuple{
		"udp dst port 5000":                        {{Version: 4, Proto: 17, DstPort: 5000}, {Version: 6, Proto: 17, DstPort: 5000}},
		"ip and udp and dst port 5000":             {{Version: 4, Proto: 17, DstPort: 5000}},
		"src host 10.0.0.1 and tcp":                {{Version: 4, Proto: 6, Src: one}},
		"src net 10.0.0.0/8 and src host 10.0.0.1": {{Version: 4, Src: one}},
		"dst net 10.0.0.0/8":                       {{Version: 4, Dst: ten}},
		"vlan 7 and ip and udp":                    {{Version: 4, Proto: 17, VLAN: 7}},
		"arp or ether proto 0x88b5":                {{EtherType: 0x806}, {EtherType: 0x88b5}},
		"ether dst 02:00:00:00:00:01":              {{DstMAC: [6]byte{2, 0, 0, 0, 0, 1}}},
		"ip and tcp dst portrange 80-81":           {{Version: 4, Proto: 6, DstPort: 80}, {Version: 4, Proto: 6, DstPort: 81}},
		"ip and udp src and dst port 9":            {{Version: 4, Proto: 17, SrcPort: 9, DstPort: 9}},
		"ip and udp port 9":                        {{Version: 4, Proto: 17, SrcPort: 9}, {Version: 4, Proto: 17, DstPort: 9}},
		"ip and udp and (udp or tcp)":              {{Version: 4, Proto: 17}},
	} {
		e, err := Parse(text)
		testenv.Must(t, err)
		got, err := e.Tuples()
		if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	if e, err := Parse("port 53"); err != nil {
		t.Fatal(err)
	} else if all, err := e.Tuples(); err != nil || len(all) != 12 {
		t.Errorf("port 53: %d tuples, %v: want two directions of three protocols over two versions of IP", len(all), err)
	}
}

func TestTuplesRefused(t *testing.T) {
	for text, want := range map[string]struct {
		offset int
		says   string
	}{
		"":                                {0, "every packet"},
		"ip and not udp":                  {11, "not"},
		"udp and len > 100":               {8, "len > 100"},
		"udp portrange 1-2000":            {14, "portrange"},
		"port 1 or 2 or 3 or 4 or 5 or 6": {5, "more than 64"},
		"tcp[13] = 2":                     {0, "tcp[13]"},
		"ether multicast":                 {0, "multicast"},
	} {
		e, err := Parse(text)
		testenv.Must(t, err)
		_, err = e.Tuples()
		var at *Error
		if !errors.As(err, &at) || at.Offset() != want.offset || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%q: %v, want it at byte %d to say %q", text, err, want.offset, want.says)
		}
	}
}

// TestTuplesCover: a packet that an expression accepts fits one of its tuples.
func TestTuplesCover(t *testing.T) {
	tests := []string{"ip", "udp", "tcp", "port 5", "src port 5", "dst port 6", "host 10.0.0.1", "dst net 10.0.0.0/30", "udp src port 6", "portrange 5-6", "ether proto 0x88b5"}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom(tests).Draw(t, "first")
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			text = "(" + text + ")" + rapid.SampledFrom([]string{" and ", " or "}).Draw(t, "how") + rapid.SampledFrom(tests).Draw(t, "test")
		}
		e, err := Parse(text)
		if errors.Is(err, ErrRejectsAll) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		proto := rapid.SampledFrom([]byte{6, 17, 1}).Draw(t, "proto")
		src, dst := rapid.ByteRange(1, 5).Draw(t, "src"), rapid.ByteRange(1, 5).Draw(t, "dst")
		sport, dport := rapid.Uint16Range(4, 7).Draw(t, "sport"), rapid.Uint16Range(4, 7).Draw(t, "dport")
		packet := append(make([]byte, 12), 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, src, 10, 0, 0, dst)
		packet = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(packet, sport), dport)
		packet = append(packet, make([]byte, 22)...)
		if !e.Matcher().Match(packet) {
			return
		}
		all, err := e.Tuples()
		if err != nil && strings.Contains(err.Error(), "more than") {
			return
		}
		fits := func(u Tuple) bool {
			in := func(p netip.Prefix, last byte) bool {
				return !p.IsValid() || p.Contains(netip.AddrFrom4([4]byte{10, 0, 0, last}))
			}
			return u.EtherType == 0 && (u.Version == 0 || u.Version == 4) && (u.Proto == 0 || u.Proto == proto) && in(u.Src, src) && in(u.Dst, dst) &&
				(u.SrcPort == 0 || u.SrcPort == sport) && (u.DstPort == 0 || u.DstPort == dport)
		}
		if err != nil || !slices.ContainsFunc(all, fits) {
			t.Fatalf("%s accepts protocol %d from %d:%d to %d:%d, which fits none of %+v: %v", text, proto, src, sport, dst, dport, all, err)
		}
	})
}
