package fabrics

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// raw returns bytes written as hexadecimal digits, with spaces, followed by zeros up to n bytes.
func raw(t *testing.T, n int, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
	if err != nil || len(b) > n {
		t.Fatalf("%d of %d bytes: %v", len(b), n, err)
	}
	return append(b, make([]byte, n-len(b))...)
}

// TestCommands: CommandOf decodes capsules as the kernel's initiator sends them, in the layout of
// struct nvme_command.
func TestCommands(t *testing.T) {
	for _, c := range []struct {
		name, digits string
		want         Command
		status       Status
	}{
		{"read, keyed, to be invalidated", "02 40 0300 01000000 0000000000000000 0000000000000000 0010000000ffff00 000002 78563412 4f  0800000000000000 ff00 0000",
			Command{Opcode: OpRead, ID: 3, Namespace: 1, Data: Data{InHost, true, 0x20000, 0x12345678, 0xffff0000001000}, Words: [6]uint32{8, 0, 0xff}}, Success},
		{"write in the capsule, with FUA", "01 40 0900 02000000 0000000000000000 0000000000000000 0000000000000000 00100000 000000 01  1000000000000000 0700 0040",
			Command{Opcode: OpWrite, ID: 9, Namespace: 2, Data: Data{Place: InCapsule, Length: 4096}, Words: [6]uint32{16, 0, 0x40000007}}, Success},
		{"keep-alive, with a descriptor of nothing", "18 40 0100 00000000 0000000000000000 0000000000000000 0000000000000000 000000 00000000 40",
			Command{Opcode: OpKeepAlive, ID: 1}, Success},
		{"connect", "7f 40 0000 01 000000 0000000000000000 0000000000000000 0020000000000000 000400 01000000 40  0000 0000 1f00 00 00 88130000",
			Command{Opcode: OpFabrics, Fabrics: Connect, Data: Data{InHost, false, 1024, 1, 0x2000}, Words: [6]uint32{0, 31, 5000}}, Success},
		{"PRPs", "02 00 0400 01000000", Command{Opcode: OpRead, ID: 4, Namespace: 1}, InvalidField | DoNotRetry},
		{"fused", "02 41 0400 01000000", Command{Opcode: OpRead, ID: 4, Namespace: 1}, InvalidField | DoNotRetry},
		{"a segment descriptor", "02 40 0400 01000000 0000000000000000 0000000000000000 0000000000000000 00000000 000000 20", Command{Opcode: OpRead, ID: 4, Namespace: 1}, InvalidSGLType | DoNotRetry},
		{"memory beyond the end", "02 40 0400 01000000 0000000000000000 0000000000000000 00ffffffffffffff 000200 01000000 40", Command{Opcode: OpRead, ID: 4, Namespace: 1}, InvalidSGLLength | DoNotRetry},
	} {
		got, status := CommandOf(raw(t, CommandLen, c.digits))
		if diff := cmp.Diff(c.want, got); diff != "" || status != c.status {
			t.Errorf("%s: %v, not %v\n%s", c.name, status, c.status, diff)
		}
	}
	if _, status := CommandOf(make([]byte, CommandLen-1)); status == Success {
		t.Error("a short capsule is a command")
	}
}

func TestCompletion(t *testing.T) {
	b := make([]byte, CompletionLen)
	c := Completion{Result: 0x0102030405060708, SQHead: 0x1112, ID: 0x2122, Status: LBAOutOfRange | DoNotRetry}
	c.Put(b)
	if want := raw(t, CompletionLen, "0807060504030201 1211 0000 2221 0081"); cmp.Diff(want, b) != "" {
		t.Errorf("%x, not %x", b, want)
	}
}

func TestPrivate(t *testing.T) {
	b := raw(t, 56, "0000 0300 8000 7f00 0500")
	r, reason := PrivateRequestOf(b)
	if want := (PrivateRequest{Queue: 3, HostRoom: 128, HostSends: 128, Controller: 5}); r != want || reason != 0 {
		t.Errorf("%+v, %v", r, reason)
	}
	if diff := cmp.Diff(b[:PrivateLen], r.Bytes()); diff != "" {
		t.Error(diff)
	}
	for want, b := range map[RejectReason][]byte{RejectLength: b[:31], RejectFormat: raw(t, 32, "01"), RejectHostRoom: raw(t, 32, "0000 0000 0000 1f00")} {
		if _, got := PrivateRequestOf(b); got != want {
			t.Errorf("%v, not %v", got, want)
		}
	}
	if got := PrivateReply(64); cmp.Diff(raw(t, 32, "0000 4000"), got) != "" {
		t.Errorf("%x", got)
	}
	if got := RejectHostSends.Bytes(); cmp.Diff(raw(t, 4, "0000 0400"), got) != "" {
		t.Errorf("%x", got)
	}
}

func TestConnectData(t *testing.T) {
	b := make([]byte, ConnectDataLen)
	copy(b, "0123456789abcdef")
	le.PutUint16(b[16:], AnyController)
	copy(b[256:], "nqn.2026-01.com.example:one")
	copy(b[512:], "nqn.2014-08.org.nvmexpress:uuid:1")
	d, _, s := ConnectDataOf(b)
	if want := (ConnectData{[16]byte([]byte("0123456789abcdef")), AnyController, "nqn.2026-01.com.example:one", "nqn.2014-08.org.nvmexpress:uuid:1"}); d != want || s != Success {
		t.Errorf("%+v, %v", d, s)
	}
	for offset, c := range map[uint64][]byte{256: []byte("iqn."), 512: []byte(strings.Repeat("n", 256)), 257: {0}} {
		broken := append([]byte(nil), b...)
		copy(broken[offset:], c)
		_, result, s := ConnectDataOf(broken)
		if s != ConnectInvalid|DoNotRetry || result != InvalidData(uint16(offset&^1)) {
			t.Errorf("at %d: %v, result %#x", offset, s, result)
		}
	}
}
