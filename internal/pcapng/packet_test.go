package pcapng

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// unhex reads hex digits with spaces and line breaks.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	testenv.Must(t, err)
	return b
}

func wantBytes(t *testing.T, got []byte, want string) {
	t.Helper()
	if w := unhex(t, want); !bytes.Equal(got, w) {
		t.Errorf("got\n%swant\n%s", hex.Dump(got), hex.Dump(w))
	}
}

// poisoned returns n bytes as a debug build fills released frames.
func poisoned(n int) []byte { return bytes.Repeat([]byte{0xCC}, n) }

func TestPacketGolden(t *testing.T) {
	const ns = 1700000000_123456789
	data := []byte{1, 2, 3, 4, 5}
	for _, c := range []struct {
		blockLen uint32
		tail     string
	}{
		{40, "000000 28000000"},
		{44, "000000 00000000 2c000000"},
		{48, "000000 00800000 00000000 30000000"},
		{52, "000000 ad4b0400 d97e0000 00000000 34000000"},
		{56, "000000 ad4b0800 d97e0000 00000000 00000000 38000000"},
	} {
		dst := poisoned(int(c.blockLen))
		PutPacket(dst, 7, ns, data, 1500, c.blockLen)
		wantBytes(t, dst[:PacketHeaderLen],
			"06000000"+hex.EncodeToString([]byte{byte(c.blockLen)})+"000000 07000000 fe9c9717 15cd853d 05000000 dc050000")
		wantBytes(t, dst[PacketHeaderLen:], "0102030405"+c.tail)
	}
}

func TestPacketBlockLen(t *testing.T) {
	for _, c := range []struct{ capLen, align, want uint32 }{
		{0, 4, 32}, {1, 4, 36}, {4, 4, 36}, {1500, 4, 1532}, {1501, 4, 1536},
		{0, 512, 512}, {480, 512, 512}, {481, 512, 1024}, {1514, 512, 2048}, {1504, 512, 1536}, {MaxCapLen, 4096, MaxCapLen + 4096},
	} {
		if got := PacketBlockLen(c.capLen, c.align); got != c.want {
			t.Errorf("PacketBlockLen(%d, %d) = %d, want %d", c.capLen, c.align, got, c.want)
		}
	}
}

// The functions write every byte of header and tail, and none outside. So earlier contents of a frame do not
// reach the disk.
func TestPacketPoison(t *testing.T) {
	for _, align := range []uint32{4, 512, 4096} {
		for capLen := uint32(0); capLen <= 1600; capLen++ {
			blockLen := PacketBlockLen(capLen, align)
			frame := poisoned(int(blockLen) + 64)
			block := frame[32 : 32+blockLen]
			clear(block[PacketHeaderLen : PacketHeaderLen+capLen])
			PutPacketHeader(block, 1, 2, capLen, capLen, blockLen)
			PutPacketTail(frame[32+PacketHeaderLen+capLen:], capLen, blockLen)
			if legitimate := legitimatePoison(blockLen, capLen); bytes.Count(block, []byte{0xCC}) > legitimate {
				t.Fatalf("capLen %d align %d: poison left in\n%s", capLen, align, hex.Dump(block))
			}
			if bytes.Count(frame, []byte{0xCC}) < 64 {
				t.Fatalf("capLen %d align %d: wrote outside the block", capLen, align)
			}
		}
	}
}

// legitimatePoison counts the bytes of the lengths that happen to be 0xCC.
func legitimatePoison(blockLen, capLen uint32) int {
	pad := uint32(0)
	if opt := blockLen - PacketHeaderLen - 4 - uint32(roundUp(uint64(capLen), 4)); opt >= 12 {
		pad = opt - 8
	}
	var b []byte
	for _, v := range []uint32{blockLen, blockLen, capLen, capLen, pad} {
		b = le.AppendUint32(b, v)
	}
	return bytes.Count(b, []byte{0xCC})
}

func TestPaddingGolden(t *testing.T) {
	dst := poisoned(20)
	PutPadding(dst)
	wantBytes(t, dst, "d97e0080 14000000 d97e0000 00000000 14000000")
	dst = poisoned(16)
	PutPadding(dst)
	wantBytes(t, dst, "d97e0080 10000000 d97e0000 10000000")
}

func TestPaddingLen(t *testing.T) {
	for _, c := range []struct {
		used int64
		want uint32
	}{{0, 0}, {512, 0}, {4, 508}, {496, 16}, {500, 524}, {508, 516}, {5<<40 + 508, 516}} {
		if got := PaddingLen(c.used, 512); got != c.want {
			t.Errorf("PaddingLen(%d, 512) = %d, want %d", c.used, got, c.want)
		}
	}
}

func TestStatisticsGolden(t *testing.T) {
	s := Statistics{Interface: 2, Time: 0x1122334455667788, Start: 5, Received: 10, Dropped: 1, Accepted: Unknown, OSDropped: 3, Delivered: Unknown}
	wantBytes(t, AppendStatistics(nil, s), `
		05000000 4c000000 02000000 44332211 88776655
		02000800 00000000 05000000
		04000800 0a00000000000000
		05000800 0100000000000000
		07000800 0300000000000000
		00000000 4c000000`)
	all := AppendStatistics(nil, Statistics{Start: 1, End: 2})
	if len(all) != StatisticsLen {
		t.Errorf("all options take %d bytes, StatisticsLen says %d", len(all), StatisticsLen)
	}
}

func TestBatchHeaderGolden(t *testing.T) {
	b := Batch{
		Segment: SegmentID{0: 0xA0, 15: 0xAF}, Align: 4096, Sequence: 3, Offset: 0x1_0000_2000, Length: 0x3000,
		Packets: 9, Durable: 0x1_0000_1000, FirstPacket: 77,
	}
	dst := poisoned(96)
	PutBatchHeader(dst, &b)
	wantBytes(t, dst, `
		d97e0080 60000000 d97e0000 5546444d 01000200 00100000
		a0000000 00000000 00000000 000000af
		0300000000000000 0020000001000000 00300000 09000000
		0010000001000000 4d00000000000000 abe2ceae 00000000 00000000 60000000`)
	got, k, err := parseMark(dst)
	if err != nil || k != kindBatch || got != b {
		t.Errorf("parseMark = %+v, %v, %v", got, k, err)
	}
}

// parseMark detects any flipped bit in the bytes that the checksum covers.
func TestBatchHeaderBitFlips(t *testing.T) {
	dst := make([]byte, MinMarkLen)
	PutBatchHeader(dst, &Batch{Align: 512, Length: 512})
	for bit := range (markCRC + 4) * 8 {
		dst[bit/8] ^= 1 << (bit % 8)
		if _, _, err := parseMark(dst); err == nil {
			t.Errorf("flipped bit %d not seen", bit)
		}
		dst[bit/8] ^= 1 << (bit % 8)
	}
}

func TestHotFunctionsDoNotAllocate(t *testing.T) {
	dst, data := make([]byte, 4096), make([]byte, 1000)
	b := Batch{Align: 512, Length: 4096}
	for name, f := range map[string]func(){
		"PutPacketHeader":  func() { PutPacketHeader(dst, 0, 1, 1000, 1000, 1536) },
		"PutPacketTail":    func() { PutPacketTail(dst[1028:], 1000, PacketBlockLen(1000, 512)) },
		"PutPacket":        func() { PutPacket(dst, 0, 1, data, 1000, 1036) },
		"PutBatchHeader":   func() { PutBatchHeader(dst[:512], &b) },
		"PutPadding":       func() { PutPadding(dst[:PaddingLen(100, 512)]) },
		"AppendStatistics": func() { AppendStatistics(dst[:0], Statistics{}) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkSlotPacket(b *testing.B) {
	dst := make([]byte, 2048)
	for b.Loop() {
		n := PacketBlockLen(1024, 512)
		PutPacketHeader(dst, 0, 1, 1024, 1024, n)
		PutPacketTail(dst[PacketHeaderLen+1024:], 1024, n)
	}
}

func BenchmarkPackedPacket(b *testing.B) {
	dst, data := make([]byte, 2048), make([]byte, 1024)
	b.SetBytes(1024)
	for b.Loop() {
		PutPacket(dst, 0, 1, data, 1024, PacketBlockLen(1024, 4))
	}
}

func BenchmarkBatchHeader(b *testing.B) {
	dst, batch := make([]byte, 512), Batch{Align: 512, Length: 4096}
	for b.Loop() {
		PutBatchHeader(dst, &batch)
	}
}
