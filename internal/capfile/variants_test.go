package capfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestVariants: the parser reads every magic number, version and header length that tcpdump or tshark
// accepts, in either byte order, with the same result as tshark.
func TestVariants(t *testing.T) {
	data := [][]byte{frame(60), frame(61), frame(1514), frame(64)}
	for _, o := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		for name, file := range map[string][]byte{
			"usual":        oldFile(o, magicMicro, data...),
			"nanoseconds":  oldFile(o, magicNano, data...),
			"modified":     append(oldHead(o, magicModified, 2, 4), oldPackets(o, 8, false, data...)...),
			"modified, 28": append(oldHead(o, magicModified, 2, 4), oldPackets(o, 12, false, data...)...),
			"usual, 24":    append(oldHead(o, magicMicro, 2, 4), oldPackets(o, 8, false, data...)...),
			"usual, 20":    append(oldHead(o, magicMicro, 2, 4), oldPackets(o, 4, false, data...)...),
			"one packet":   oldFile(o, magicMicro, data[0]),
			"no packet":    oldFile(o, magicMicro),
			"2.0":          append(oldHead(o, magicMicro, 2, 0), oldPackets(o, 0, true, data...)...),
			"2.3":          append(oldHead(o, magicMicro, 2, 3), oldPackets(o, 0, false, data...)...),
			"2.3, swapped": append(oldHead(o, magicMicro, 2, 3), oldPackets(o, 0, true, data...)...),
			"543.0":        append(oldHead(o, magicMicro, 543, 0), oldPackets(o, 0, true, data...)...),
			"Ixia's card":  append(append(oldHead(o, magicIxiaCard, 2, 4), 0, 0, 1, 0), oldPackets(o, 0, false, data...)...),
			"Ixia's soft":  append(append(oldHead(o, magicIxiaSoft, 2, 4), 0, 0, 1, 0), oldPackets(o, 0, false, data...)...),
			"sections":     sections(o, data),
			"long options": longOptions(o, data),
		} {
			t.Run(fmt.Sprintf("%v %s", o, name), func(t *testing.T) {
				all, err := read(t, file, false)
				testenv.Must(t, err)
				var got strings.Builder
				for _, p := range all {
					fmt.Fprintf(&got, "%d.%09d\t%d\t%d\t%x\n", p.Time/1e9, p.Time%1e9, p.Len, p.Orig, file[p.Offset:][6:12])
				}
				if want := tshark(t, file); got.String() != want {
					t.Errorf("read:\n%s\ntshark:\n%s", &got, want)
				}
			})
		}
	}
}

// frame is an Ethernet packet of n bytes whose source address contains its length.
func frame(n int) []byte {
	b := append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, byte(n >> 8), byte(n), 0x88, 0xb5}, bytes.Repeat([]byte{'E'}, n)...)
	return b[:n]
}

// tshark returns the packets that tshark finds in a file.
func tshark(t *testing.T, file []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	testenv.Must(t, os.WriteFile(name, file, 0o600))
	out, err := exec.Command("tshark", "-n", "-r", name, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.cap_len", "-e", "frame.len", "-e", "eth.src").Output()
	testenv.Mustf(t, err, "tshark")
	return strings.ReplaceAll(string(out), ":", "")
}

// sections are two sections of pcapng, each with blocks that have no packets.
func sections(o binary.AppendByteOrder, data [][]byte) (file []byte) {
	for _, one := range [][][]byte{data[:1], data[1:]} {
		file = block(o, file, blockSection, section(o))
		file = block(o, file, blockInterface, description(o, linkEthernet, 0))
		file = block(o, file, 0x00001234, bytes.Repeat([]byte{1}, 1<<20))
		file = block(o, file, 0x80001234, []byte("12345678"))
		for n, d := range one {
			file = block(o, file, blockPacket, packet(o, 0, uint64(n)+7e6, d, uint32(len(d))))
		}
	}
	return file
}

// longOptions is a file in which each block has comments longer than any packet.
func longOptions(o binary.AppendByteOrder, data [][]byte) []byte {
	var comments []byte
	for range 20 {
		comments = append(comments, option(o, 1, bytes.Repeat([]byte("c"), 65535)...)...)
	}
	comments = append(comments, option(o, optionEnd)...)
	file := block(o, nil, blockSection, append(section(o), comments...))
	file = block(o, file, blockInterface, description(o, linkEthernet, 0, comments))
	for n, d := range data {
		one := packet(o, 0, uint64(n)+7e6, d, uint32(len(d)))
		one = append(one, make([]byte, -len(one)&3)...)
		file = block(o, file, blockPacket, append(one, comments...))
	}
	return file
}

// TestLongerThanItself: the captured length never exceeds the packet's own length, even if the file has more
// bytes.
func TestLongerThanItself(t *testing.T) {
	o := binary.LittleEndian
	old := oldFile(o, magicMicro, frame(76), frame(60))
	o.PutUint32(old[headerLen+12:], 60)
	ng := block(o, block(o, nil, blockSection, section(o)), blockInterface, description(o, linkEthernet, 0))
	ng = block(o, ng, blockPacket, packet(o, 0, 7, frame(76), 60))
	ng = block(o, ng, blockPacket, packet(o, 0, 7, frame(60), 60))
	for name, file := range map[string][]byte{"pcap": old, "pcapng": ng} {
		all, err := read(t, file, false)
		if err != nil || len(all) != 2 || all[0].Len != 60 || all[0].Orig != 60 || all[1].Len != 60 {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
}
