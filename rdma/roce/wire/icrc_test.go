package wire

import (
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	testenv.Must(t, err)
	return b
}

// vectors has packets of other implementations, from the IP header on, from test/contrib/roce.uts
// of scapy. (Its second CNP, made by hand, has an ICRC that its authors could not reproduce.)
var vectors = map[string]string{
	"IPv4 UC": "45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2 2460ffff000000d300cf1710 " +
		"4630818be28935d90e9a95505401be885e500000 78f353f3",
	"CNP of a ConnectX-4": "45c2003c718c4000401191610a0011010a001201 000012b700280000 8100ffff4000011800000000 " +
		"00000000000000000000000000000000 82fd002a",
	"IPv6 UC": "6e21face002c11ff 20220000000000000000000000001023 20230000000000000000000000001024 c00012b7002ce7c5 " +
		"2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 3e5b743b",
}

func TestICRCVectors(t *testing.T) {
	for name, text := range vectors {
		packet := unhex(t, text)
		if !Check(packet) {
			t.Errorf("%s: wrong ICRC", name)
		}
		var trailer [ICRCBytes]byte
		n := len(packet) - ICRCBytes
		if Begin(packet[:n]).Finish(trailer[:], 0); trailer != [4]byte(packet[n:]) {
			t.Errorf("%s: ICRC %x, want %x", name, trailer, packet[n:])
		}
		frame := append(unhex(t, "020000000002 020000000001 0800"), packet...)
		if packet[0]>>4 == 6 {
			be.PutUint16(frame[12:], typeIPv6)
		}
		if d := decode(t, frame); d.PKey != DefaultPKey {
			t.Errorf("%s: partition %x", name, d.PKey)
		}
	}
}

// TestICRCOfRoCE1: the CRC of RoCE v1 has the same sum: its global route header is masked like
// IPv6, and it has no UDP. The packets are a captured WRITE_ONLY of five bytes and its
// acknowledgement, from the same file.
func TestICRCOfRoCE1(t *testing.T) {
	const addresses = "00000000000000000000ffff0f000002 00000000000000000000ffff0f000002"
	for _, text := range []string{
		"6020000000281b40" + addresses + "0a70ffff0000010a80a788bc 000055d4c0726000000047b300000005 0000000001 000000 e3d856bb",
		"6020000000141b40" + addresses + "1140ffff0000010900a788c0 00000005 25f0c038",
	} {
		packet := unhex(t, text)
		packet[0], packet[1], packet[2], packet[3], packet[7] = 0x6f, 0xff, 0xff, 0xff, 0xff
		packet[ipv6Bytes+4] = 0xff
		if !ICRC(^afterOnes).Add(packet).Intact() {
			t.Errorf("wrong ICRC: %s", text)
		}
	}
}

// plain computes the ICRC from a copy with ones, with nothing but hash/crc32.
func plain(packet []byte) uint32 {
	c := append([]byte{255, 255, 255, 255, 255, 255, 255, 255}, packet...)
	p, ip := c[8:], 20
	if packet[0]>>4 == 6 {
		ip = 40
		p[0], p[1], p[2], p[3], p[7] = 0x6f, 255, 255, 255, 255
	} else {
		p[1], p[8], p[10], p[11] = 255, 255, 255, 255
	}
	p[ip+6], p[ip+7], p[ip+12] = 255, 255, 255
	return crc32.ChecksumIEEE(c)
}

// TestICRCInPieces: the ICRC of a packet in pieces is that of the whole packet, wherever it is cut.
func TestICRCInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		packet := make([]byte, 40+r.IntN(300))
		packet[0] = 0x45
		if r.IntN(2) == 0 {
			packet = append(packet, make([]byte, 20)...)
			packet[0] = 0x6a
		}
		for i := range packet[1:] {
			packet[1+i] = byte(r.Uint32())
		}
		least := 40
		if packet[0] == 0x6a {
			least = 60
		}
		a := least + r.IntN(len(packet)-least+1)
		b := a + r.IntN(len(packet)-a+1)
		c := Begin(packet[:a]).Add(packet[a:b]).Add(packet[b:])
		if want := plain(packet); uint32(c) != want || uint32(Begin(packet)) != want {
			t.Fatalf("%d bytes cut at %d and %d: %08x, want %08x", len(packet), a, b, uint32(c), want)
		}
		pad := r.IntN(4)
		whole := append(packet, 9, 9, 9, 9, 9, 9, 9)
		if n := c.Finish(whole[len(packet):], uint8(pad)); n != pad+ICRCBytes || !Check(whole[:len(packet)+n]) {
			t.Fatalf("%d bytes and %d of padding: trailer of %d, intact %v", len(packet), pad, n, Check(whole[:len(packet)+n]))
		}
	}
}

// TestICRCIsOfWhatStays: Check detects each flipped bit, except in fields that may change on the
// way.
func TestICRCIsOfWhatStays(t *testing.T) {
	for name, text := range vectors {
		packet := unhex(t, text)
		ip, varies := 20, map[int]byte{1: 0xff, 8: 0xff, 10: 0xff, 11: 0xff}
		if packet[0]>>4 == 6 {
			ip, varies = 40, map[int]byte{0: 0x0f, 1: 0xff, 2: 0xff, 3: 0xff, 7: 0xff}
		}
		varies[ip+6], varies[ip+7], varies[ip+12] = 0xff, 0xff, 0xff
		for at := range packet {
			for bit := range 8 {
				mask := byte(1) << bit
				if at == 0 && mask&0xf0 != 0 {
					continue // another version of IP
				}
				packet[at] ^= mask
				if want := varies[at]&mask != 0; Check(packet) != want {
					t.Errorf("%s: bit %d of byte %d flipped: intact %v, want %v", name, bit, at, !want, want)
				}
				packet[at] ^= mask
			}
		}
	}
}

// TestICRCOfLittle: Check refuses packets that are too short.
func TestICRCOfLittle(t *testing.T) {
	for first := range 256 {
		for n := range 61 {
			packet := make([]byte, n)
			if n > 0 {
				packet[0] = byte(first)
			}
			if Check(packet) {
				t.Errorf("%d bytes of 0x%02x are intact", n, first)
			}
		}
	}
}
