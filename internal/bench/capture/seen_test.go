package capture

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"
)

// numbered is a packet of the sender, as far as seen reads it.
func numbered(n uint64) []byte {
	p := make([]byte, 64)
	binary.BigEndian.PutUint32(p[magicAt:], magic)
	binary.BigEndian.PutUint64(p[numberAt:], n)
	return p
}

// TestSeen: seen distinguishes packets that are missing, duplicate, foreign, or were never sent.
func TestSeen(t *testing.T) {
	s := newSeen(128)
	for _, n := range []uint64{0, 1, 64, 127, 1} {
		s.add(numbered(n))
	}
	s.add(numbered(128))
	s.add(make([]byte, 64))
	s.add(numbered(2)[:numberEnds-1])
	if s.packets != 6 || s.numbers != 4 || s.twice != 1 || s.beyond != 1 || s.foreign != 2 || s.sound() == nil {
		t.Errorf("%+v, %v", *s, s.sound())
	}
}

// TestFormats: the numbers can be read from each kind of file, up to the point where it is
// truncated.
func TestFormats(t *testing.T) {
	var pcap, ng bytes.Buffer
	p, n := pcapgo.NewWriterNanos(&pcap), (*pcapgo.NgWriter)(nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.WriteFileHeader(65535, 1))
	n, err := pcapgo.NewNgWriter(&ng, 1)
	must(err)
	block := make([]byte, stenoBlock)
	binary.LittleEndian.PutUint32(block[12:], 10)
	binary.LittleEndian.PutUint32(block[16:], 48)
	for i := range uint64(10) {
		data := numbered(i)
		info := gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(data), Length: len(data)}
		must(p.WritePacket(info, data))
		must(n.WritePacket(info, data))
		at := block[48+160*i:]
		binary.LittleEndian.PutUint32(at, 160)
		binary.LittleEndian.PutUint32(at[12:], uint32(len(data)))
		binary.LittleEndian.PutUint16(at[24:], 82)
		copy(at[82:], data)
	}
	must(n.Flush())
	for _, c := range []struct {
		name  string
		f     format
		bytes []byte
	}{{"pcap", readPcap, pcap.Bytes()}, {"pcapng", readPcapng, ng.Bytes()}, {"steno", readSteno, block}} {
		dir := t.TempDir()
		must(os.WriteFile(filepath.Join(dir, "a"), c.bytes, 0o600))
		s := newSeen(10)
		if err := s.read(filepath.Join(dir, "*"), c.f); err != nil || s.numbers != 10 || s.sound() != nil || s.bytes != int64(len(c.bytes)) {
			t.Errorf("%s: %+v, %v", c.name, *s, err)
		}
	}
	for name, f := range map[string]format{"pcap": readPcap, "pcapng": readPcapng} {
		b := map[string][]byte{"pcap": pcap.Bytes(), "pcapng": ng.Bytes()}[name]
		found := 0
		if err := f(bytes.NewReader(b[:len(b)-10]), func([]byte) { found++ }); err != nil || found != 9 {
			t.Errorf("%s that is cut: %d packets, %v", name, found, err)
		}
	}
	binary.LittleEndian.PutUint32(block[12:], 1<<20)
	binary.LittleEndian.PutUint32(block[48:], 1<<20)
	if readSteno(bytes.NewReader(block), func([]byte) {}) == nil {
		t.Error("a block with packets outside was read")
	}
}
