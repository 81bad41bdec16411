package capfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// read finds all packets of a file in memory. It fails if the parser goes back, reads outside of the file, or
// reports a packet that Keep did not cover.
func read(t testing.TB, file []byte, growing bool) (all []Packet, err error) {
	t.Helper()
	p := Parser{Growing: growing, Extra: Probe(bytes.NewReader(file), int64(len(file)))}
	p.Begin(int64(len(file)))
	last, same, kept := int64(-1), 0, int64(0)
	for {
		place, n := p.Want()
		if n == 0 {
			return all, nil
		}
		if same++; place > last {
			last, same = place, 0
		}
		if place < last || n < 0 || n > MaxWant || same > 2 {
			t.Fatalf("it wants %d bytes at %d after %d, %d times", n, place, last, same)
		}
		keep := p.Keep()
		if keep > place || keep < kept {
			t.Fatalf("what is to be kept begins at %d after %d, and what it wants at %d", keep, kept, place)
		}
		kept = keep
		var b []byte
		if place+int64(n) <= int64(len(file)) {
			b = file[place : place+int64(n)]
		}
		one, ok, err := p.Give(b)
		if err != nil {
			return all, err
		}
		if !ok {
			continue
		}
		if one.Offset < 0 || one.Len > MaxLen || one.Offset+int64(one.Len) > int64(len(file)) {
			t.Fatalf("a packet outside of the file: %+v of %d", one, len(file))
		}
		if one.Offset < kept {
			t.Fatalf("a packet at %d, which needed to be kept from %d on only", one.Offset, kept)
		}
		all = append(all, one)
	}
}

// sample returns a few packets of several lengths with times a nanosecond apart, and more.
func sample() (infos []gopacket.CaptureInfo, data [][]byte) {
	at := time.Unix(1_700_000_000, 999_999_990)
	for n := range 40 {
		b := bytes.Repeat([]byte{byte(n)}, 14+n*37)
		at = at.Add(time.Duration(n*n) * 1001)
		infos = append(infos, gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(b), Length: len(b) + n%3})
		data = append(data, b)
	}
	return infos, data
}

// TestAgainstWriters: the parser reads files of gopacket, and of editcap in each of its formats.
func TestAgainstWriters(t *testing.T) {
	infos, data := sample()
	var file bytes.Buffer
	w, err := pcapgo.NewNgWriter(&file, layers.LinkTypeEthernet)
	testenv.Must(t, err)
	for i := range infos {
		testenv.Must(t, w.WritePacket(infos[i], data[i]))
	}
	testenv.Must(t, w.Flush())
	same(t, file.Bytes(), infos, data, 1)
	dir := t.TempDir()
	from := filepath.Join(dir, "from.pcapng")
	testenv.Must(t, os.WriteFile(from, file.Bytes(), 0o600))
	for format, unit := range map[string]time.Duration{"pcapng": 1, "pcap": time.Microsecond, "nsecpcap": 1} {
		to := filepath.Join(dir, format)
		if out, err := exec.Command(testenv.Tool(t, "editcap"), "-F", format, from, to).CombinedOutput(); err != nil {
			t.Fatalf("editcap: %v\n%s", err, out)
		}
		b, err := os.ReadFile(to)
		testenv.Must(t, err)
		same(t, b, infos, data, unit)
	}
}

// same compares the packets of a file with those that were written to it.
func same(t *testing.T, file []byte, infos []gopacket.CaptureInfo, data [][]byte, unit time.Duration) {
	t.Helper()
	all, err := read(t, file, false)
	if err != nil || len(all) != len(infos) {
		t.Fatalf("%d packets of %d: %v", len(all), len(infos), err)
	}
	for i, p := range all {
		want := uint64(infos[i].Timestamp.Truncate(unit).UnixNano())
		if p.Time != want || !p.Timed || p.Orig != uint32(infos[i].Length) || p.Link != linkEthernet || !bytes.Equal(file[p.Offset:][:p.Len], data[i]) {
			t.Fatalf("packet %d: %+v, want time %d, %d of %d bytes", i, p, want, len(data[i]), infos[i].Length)
		}
	}
}

// TestByteOrders: the parser reads both formats in both byte orders, with every kind of block that has a
// packet, several sections, and times of several resolutions.
func TestByteOrders(t *testing.T) {
	for _, o := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		t.Run(fmt.Sprint(o), func(t *testing.T) {
			pcap := oldFile(o, magicMicro, []byte("one"), []byte("three"))
			all, err := read(t, pcap, false)
			if err != nil || len(all) != 2 || all[1].Time != 8_000_009_000 || string(pcap[all[1].Offset:][:all[1].Len]) != "three" {
				t.Errorf("pcap: %+v, %v", all, err)
			}
			var file []byte
			for range 2 {
				file = block(o, file, blockSection, section(o))
				file = block(o, file, blockInterface, description(o, 1, 10))
				file = block(o, file, blockInterface, description(o, 147, 0, option(o, optionResolution, 0x80|10), option(o, optionOffset, number(o, 5)...)))
				file = block(o, file, 0x80000bad, []byte("1234"))
				file = block(o, file, blockPacket, packet(o, 1, 3<<10|512, []byte("abcde"), 9))
				file = block(o, file, blockOldPacket, packet(o, 7<<16, 4, []byte("x"), 1)) // the drop count is in the other half
				file = block(o, file, blockSimple, append(o.AppendUint32(nil, 12), "1234567890xx"...))
			}
			if o == binary.BigEndian { // the number of the interface is the upper half
				file = bytes.ReplaceAll(file, []byte{0, 7, 0, 0}, []byte{0, 0, 0, 7})
			}
			all, err = read(t, file, false)
			if err != nil || len(all) != 6 {
				t.Fatalf("pcapng: %+v, %v", all, err)
			}
			want := []Packet{{0, 5, 9, 147, 8_500_000_000, true}, {0, 1, 1, 1, 4000, true}, {0, 10, 12, 1, 0, false}}
			text := []string{"abcde", "x", "1234567890"}
			for i, p := range all {
				w := want[i%3]
				if w.Offset = p.Offset; p != w || string(file[p.Offset:][:p.Len]) != text[i%3] {
					t.Errorf("packet %d: %+v, want %+v", i, p, w)
				}
			}
		})
	}
}

// TestTimes: the parser converts times of each resolution exactly, and refuses those before 1970 and after 2554.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		clock clock
		units uint64
		want  uint64
		ok    bool
	}{
		{clock{power: 9}, 123, 123, true},
		{clock{power: 9}, math.MaxUint64, math.MaxUint64, true},
		{clock{power: 0}, 3, 3e9, true},
		{clock{power: 0}, 99999999999, 0, false},
		{clock{power: 0, offset: -99999999990}, 99999999999, 9e9, true},
		{clock{power: 12}, 1999, 1, true},
		{clock{power: 28}, math.MaxUint64, 1, true},
		{clock{power: 29}, math.MaxUint64, 0, true},
		{clock{power: 127}, 5, 0, true},
		{clock{power: 63, binary: true}, 1 << 63, 1e9, true},
		{clock{power: 64, binary: true}, math.MaxUint64, 999999999, true},
		{clock{power: 65, binary: true}, 1 << 63, 250000000, true},
		{clock{power: 127, binary: true}, 5, 0, true},
		{clock{power: 0, binary: true}, 7, 7e9, true},
		{clock{power: 32, binary: true}, 1<<32 | 1<<31, 1.5e9, true},
		{clock{power: 9, offset: -1}, 1.5e9, 0.5e9, true},
		{clock{power: 9, offset: -2}, 1.5e9, 0, false},
		{clock{power: 9, offset: math.MinInt64}, 1, 0, false},
		{clock{power: 9, offset: math.MaxInt64}, 1, 0, false},
	} {
		if got, ok := c.clock.time(c.units); ok != c.ok || ok && got != c.want {
			t.Errorf("%+v of %d: %d, %v, want %d, %v", c.clock, c.units, got, ok, c.want, c.ok)
		}
	}
}

// TestDamaged: the parser returns all packets before a fault, and then an error with the fault's
// place.
func TestDamaged(t *testing.T) {
	o := binary.LittleEndian
	head := block(o, block(o, nil, blockSection, section(o)), blockInterface, description(o, 1, 0))
	good := block(o, head, blockPacket, packet(o, 0, 1, []byte("abcd"), 4))
	at := len(good)
	with := func(kind uint32, body []byte) []byte { return block(o, bytes.Clone(good), kind, body) }
	long := packet(o, 0, 1, []byte("abcd"), 4)
	o.PutUint32(long[12:], 400)
	for name, c := range map[string]struct {
		file    []byte
		packets int
		where   int
		says    string
	}{
		"empty":          {nil, 0, 0, "ends inside"},
		"no capture":     {[]byte("hello, this is text"), 0, 0, "neither pcap"},
		"other format":   {[]byte("snoop\x00\x00\x00\x00\x00\x00\x02"), 0, 0, "editcap -F pcapng"},
		"cut in a block": {good[:at-3], 0, len(head), "ends inside"},
		"cut in a head":  {with(5, nil)[:at+5], 1, at, "ends inside"},
		"zeros":          {append(bytes.Clone(good), make([]byte, 64)...), 1, at, "impossible length"},
		"odd length":     {append(bytes.Clone(good), 6, 0, 0, 0, 33, 0, 0, 0, 1, 1, 1, 1), 1, at, "impossible length"},
		"trailer":        {append(with(9, nil)[:at+8], 13, 0, 0, 0), 1, at, "differ"},
		"interface":      {with(blockPacket, packet(o, 1, 1, nil, 0)), 1, at, "not described"},
		"capture length": {with(blockPacket, long), 1, at, "impossible length"},
		"short packet":   {with(blockPacket, nil), 1, at, "impossible length"},
		"option":         {with(blockInterface, description(o, 1, 0, []byte{9, 0, 200, 0, 1, 0, 0, 0})), 1, at, "option"},
		"order":          {with(blockSection, make([]byte, 16)), 1, at, "byte order"},
		"version":        {with(blockSection, append(o.AppendUint32(nil, orderMagic), 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), 1, at, "version"},
		"old record":     {oldFile(o, magicNano, []byte("one"))[:42], 0, 24, "ends inside"},
		"old length":     {append(oldFile(o, magicNano), bytes.Repeat([]byte{255}, 16)...), 0, 24, "impossible length"},
	} {
		all, err := read(t, c.file, false)
		e, ok := errors.AsType[*Error](err)
		if !ok || len(all) != c.packets || e.Offset != int64(c.where) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d packets, %v; want %d, %q at %d", name, len(all), err, c.packets, c.says, c.where)
		}
	}
	if all, err := read(t, append(bytes.Clone(good), make([]byte, 64)...), true); len(all) != 1 || err != nil {
		t.Errorf("a file that grows: %d packets, %v", len(all), err)
	}
}

// TestParserAllocates: finding packets allocates nothing.
func TestParserAllocates(t *testing.T) {
	o := binary.LittleEndian
	file := block(o, block(o, nil, blockSection, section(o)), blockInterface, description(o, 1, 0))
	for range 1000 {
		file = block(o, file, blockPacket, packet(o, 0, 1, []byte("abcd"), 4))
	}
	var p Parser
	packets := 0
	all := func() {
		p.Begin(int64(len(file)))
		for place, n := p.Want(); n > 0; place, n = p.Want() {
			if _, ok, err := p.Give(file[place : place+int64(n)]); err != nil {
				t.Fatal(err)
			} else if ok {
				packets++
			}
		}
	}
	if n := testing.AllocsPerRun(3, all); n != 0 || packets != 4000 {
		t.Errorf("%v allocations for 1000 packets (%d found)", n, packets)
	}
}

func FuzzParser(f *testing.F) {
	for _, o := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		f.Add(oldFile(o, magicNano, []byte("one"), []byte("three")), false)
		file := block(o, block(o, nil, blockSection, section(o)), blockInterface, description(o, 1, 9, option(o, optionResolution, 9)))
		file = block(o, file, blockPacket, packet(o, 0, 1, []byte("abcd"), 4))
		f.Add(block(o, file, blockSimple, append(o.AppendUint32(nil, 4), "1234"...)), true)
	}
	f.Fuzz(func(t *testing.T, file []byte, growing bool) {
		all, err := read(t, file, growing)
		r, e := pcapgo.NewReader(bytes.NewReader(file))
		if e != nil || err != nil || r.LinkType() != layers.LinkTypeEthernet {
			return
		}
		for _, p := range all { // the packets of another reader are in a whole pcap file
			data, ci, e := r.ReadPacketData()
			if errors.Is(e, io.EOF) || e != nil {
				return // it bounds lengths by the snapshot length
			}
			if !bytes.Equal(data, file[p.Offset:][:p.Len]) || uint64(ci.Timestamp.UnixNano()) != p.Time {
				t.Fatalf("%+v, and the other reader %+v", p, ci)
			}
		}
	})
}

// block appends a pcapng block.
func block(o binary.AppendByteOrder, dst []byte, kind uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	n := uint32(len(body)) + 12
	dst = o.AppendUint32(o.AppendUint32(bytes.Clone(dst), kind), n)
	return o.AppendUint32(append(dst, body...), n)
}

func section(o binary.AppendByteOrder) []byte {
	return o.AppendUint64(o.AppendUint16(o.AppendUint16(o.AppendUint32(nil, orderMagic), 1), 0), math.MaxUint64)
}

func description(o binary.AppendByteOrder, link uint16, snaplen uint32, options ...[]byte) []byte {
	b := o.AppendUint32(o.AppendUint16(o.AppendUint16(nil, link), 0), snaplen)
	for _, one := range options {
		b = append(b, one...)
	}
	return b
}

func option(o binary.AppendByteOrder, code uint16, value ...byte) []byte {
	b := append(o.AppendUint16(o.AppendUint16(nil, code), uint16(len(value))), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func number(o binary.AppendByteOrder, n uint64) []byte { return o.AppendUint64(nil, n) }

func packet(o binary.AppendByteOrder, number uint32, at uint64, data []byte, orig uint32) []byte {
	b := o.AppendUint32(o.AppendUint32(o.AppendUint32(nil, number), uint32(at>>32)), uint32(at))
	return append(o.AppendUint32(o.AppendUint32(b, uint32(len(data))), orig), data...)
}

// oldFile is a pcap file of Ethernet packets.
func oldFile(o binary.AppendByteOrder, magic uint32, data ...[]byte) []byte {
	return append(oldHead(o, magic, 2, 4), oldPackets(o, 0, false, data...)...)
}

// oldHead is the header of a pcap file.
func oldHead(o binary.AppendByteOrder, magic uint32, major, minor uint16) []byte {
	b := o.AppendUint16(o.AppendUint16(o.AppendUint32(nil, magic), major), minor)
	return o.AppendUint32(o.AppendUint32(append(b, make([]byte, 8)...), 65535), linkEthernet)
}

// oldPackets returns the packets of a pcap file. Their headers are longer by extra bytes and have their
// lengths in either order.
func oldPackets(o binary.AppendByteOrder, extra int, swapped bool, data ...[]byte) (b []byte) {
	for n, d := range data {
		b = o.AppendUint32(o.AppendUint32(b, 7+uint32(n)), 8+uint32(n))
		lengths := [2]uint32{uint32(len(d)), uint32(len(d)) + uint32(n)}
		if swapped {
			lengths[0], lengths[1] = lengths[1], lengths[0]
		}
		b = o.AppendUint32(o.AppendUint32(b, lengths[0]), lengths[1])
		b = append(append(b, make([]byte, extra)...), d...)
	}
	return b
}
