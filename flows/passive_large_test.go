package flows

import (
	"errors"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestPassiveLargeRing: a ring of 4 GiB holds what arrives while the disk stands still, and is
// written from all of its blocks: addresses take more than 32 bits, and io_uring has the memory in several buffers.
// Nothing is lost.
func TestPassiveLargeRing(t *testing.T) {
	testenv.Long(t, "a ring of 4 GiB takes a while to fill, and to write")
	const size, length = 4 << 30, 8900
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil || uint64(s.Totalram)*uint64(s.Unit) < 3*size {
		t.Skipf("the machine has %d GiB: too little for a ring of 4 GiB", uint64(s.Totalram)*uint64(s.Unit)>>30)
	}
	l := newLab(t, testenv.PairOptions{MTU: 9000, NoAddresses: true})
	text := strings.Replace(l.passive(", filter: udp", ""), "buffer: 16MiB", "buffer: 4GiB", 1)
	text = strings.Replace(text, "segment: {size: 32MiB}", "segment: {size: 1GiB}", 1)
	began := time.Now()
	f := l.start(t, text, Options{}).Flows()[0]
	t.Logf("the ring is there after %v", time.Since(began))
	ring := passiveSource(t, f).Ring()
	sender, sent := testenv.NewSender(t, &l.A), uint64(0)
	for range 2 { // once around the ring, and beyond its end
		resume, first := make(chan struct{}), int(f.Status().Buffer.Received)
		go func() { _ = f.worker.Do(func() error { <-resume; return nil }) }()
		// From three quarters on the kernel may call the ring full while it goes from one block to the next
		// (__packet_rcv_has_room in net/packet/af_packet.c).
		last := ring.Bytes((first + len(ring.About)*2/3) % len(ring.About))
		for closed := false; !closed; closed = sent%64 == 0 && last[8]&unix.TP_STATUS_USER != 0 {
			ok, err := sender.Send(testenv.UDP(&l.A, &l.B, 5000, sent, length))
			testenv.Must(t, err)
			if ok {
				sent++
			}
		}
		close(resume)
		await(t, f, "all packets written", func(s status.Flow) bool { return s.Written.Packets+s.Dropped["buffer_full"] == sent })
	}
	done := f.Status()
	if done.Dropped["buffer_full"] != 0 || done.Buffer.Received < uint64(len(ring.About)*5/4) || done.Buffer.Bytes != size {
		t.Errorf("%+v; %v of %d packets", done.Buffer, done.Dropped, sent)
	}
	stopped(t, f)
	balanced(t, f.Status(), sent)
	if n := numberedPackets(t, l.files(t)); n != sent {
		t.Errorf("the files have %d packets of %d", n, sent)
	}
	debug.FreeOSMemory()
}

// numberedPackets reads numbered packets of files too large for memory, and returns how many there are. The test
// fails at one that is damaged or out of order.
func numberedPackets(t *testing.T, files []string) (n uint64) {
	t.Helper()
	for _, name := range files {
		f, err := os.Open(name)
		testenv.Must(t, err)
		defer f.Close()
		r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
		testenv.Must(t, err)
		for {
			frame, _, err := r.ZeroCopyReadPacketData()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if number, ok := testenv.Sequence(frame); !ok || number != n || !testenv.Intact(frame) {
				t.Fatalf("%s: packet %d has number %d", name, n, number)
			}
			n++
		}
	}
	return n
}
