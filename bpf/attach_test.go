package bpf

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// attachTo attaches the program to the interface at the end.
func attachTo(t testing.TB, p *Program, end *testenv.End, mode Mode) (err error) {
	t.Helper()
	end.Do(t, func() { err = p.Attach(end.Index, mode) })
	return err
}

// programOn returns the id of the XDP program on the interface, 0 for none.
func programOn(t testing.TB, end *testenv.End) (id uint32) {
	t.Helper()
	end.Do(t, func() {
		xdp, err := attached(end.Index)
		testenv.Must(t, err)
		if xdp != nil {
			id = xdp.ProgId
		}
	})
	return id
}

func now(t testing.TB) uint64 {
	t.Helper()
	var ts unix.Timespec
	testenv.Must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return uint64(ts.Nano())
}

// awaitTotal waits until the program has seen n packets, and then a moment longer, in case more
// arrive.
func awaitTotal(t testing.TB, p *Program, n int) Counters {
	t.Helper()
	testenv.Wait(t, 10*time.Second, "packets to be counted", func() bool {
		return mustCount(t, p).Total().Packets >= uint64(n)
	})
	time.Sleep(20 * time.Millisecond)
	return mustCount(t, p)
}

func TestRedirectsCountsAndStamps(t *testing.T) {
	for _, mode := range []Mode{Driver, Generic} {
		t.Run(mode.String(), func(t *testing.T) { redirectsCountsAndStamps(t, mode) })
	}
}

func redirectsCountsAndStamps(t *testing.T, mode Mode) {
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	p := mustLoad(t, Config{MultiBuffer: true, Timestamps: true, MaxLen: 1000, Filter: mustParse(t, "udp port 7")})
	testenv.Must(t, attachTo(t, p, &pair.B, mode))
	if p.Mode() != mode {
		t.Errorf("mode %v, asked for %v", p.Mode(), mode)
	}
	socket := newXSK(t, &pair.B, 0)
	testenv.Must(t, p.SetSocketOf(0, 0, socket.fd))
	var frames [][]byte
	for i := range uint64(600) {
		frames = append(frames, testenv.UDP(&pair.A, &pair.B, 7, i, 100+int(i)))
	}
	for i := range uint64(400) {
		frames = append(frames, testenv.UDP(&pair.A, &pair.B, 7, i, 1100), testenv.UDP(&pair.A, &pair.B, 8, i, 200))
	}
	start := now(t)
	sent := testenv.SendRaw(t, &pair.A, frames, testenv.SendOptions{Rate: 20000})
	if sent != len(frames) {
		t.Fatalf("only %d of %d frames were sent", sent, len(frames))
	}
	got := awaitTotal(t, p, len(frames))
	want := Counters{Redirected: {600, 600*100 + 599*600/2}, TooLong: {400, 400 * 1100}, NoMatch: {400, 400 * 200}}
	if got != want {
		t.Errorf("counters %+v, want %+v", got, want)
	}
	checkStamps(t, socket, frames, start)
	if p.MetaRefused() {
		t.Error("metadata refused by veth")
	}
	testenv.Must(t, p.ClearSocketOf(0, 0))
	testenv.SendRaw(t, &pair.A, frames[:10], testenv.SendOptions{})
	if got := awaitTotal(t, p, len(frames)+10)[NoSocket].Packets; got != 10 {
		t.Errorf("%d packets without a socket, want 10", got)
	}
}

// checkStamps checks the timestamps of the packets that the socket had room for.
func checkStamps(t *testing.T, socket *xskSocket, frames [][]byte, start uint64) {
	t.Helper()
	packets, stamps := socket.received()
	if len(packets) != ringSize {
		t.Fatalf("%d packets in the ring, want %d", len(packets), ringSize)
	}
	for i, packet := range packets {
		if !bytes.Equal(packet, frames[i]) {
			t.Fatalf("packet %d arrived changed:\n%x\n%x", i, packet, frames[i])
		}
	}
	if !slices.IsSorted(stamps) || stamps[0] < start || stamps[ringSize-1] > now(t) {
		t.Errorf("timestamps not in order and between %d and %d: %d", start, now(t), stamps)
	}
}

func TestMultiBufferPacketsAreCountedWhole(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 9000})
	p := mustLoad(t, Config{MultiBuffer: true, MaxLen: 8000, Filter: mustParse(t, "udp port 7")})
	testenv.Must(t, attachTo(t, p, &pair.B, Driver))
	frames := [][]byte{testenv.UDP(&pair.A, &pair.B, 7, 0, 9014), testenv.UDP(&pair.A, &pair.B, 7, 0, 8000)}
	testenv.SendRaw(t, &pair.A, frames, testenv.SendOptions{})
	if got, want := awaitTotal(t, p, 2), (Counters{TooLong: {1, 9014}, NoSocket: {1, 8000}}); got != want {
		t.Errorf("counters %+v, want %+v", got, want)
	}
}

func TestDriverModeIsAskedForAndReported(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 9000})
	lo := testenv.End{Namespace: pair.A.Namespace, Ifname: "lo", Index: 1}
	p := mustLoad(t, Config{})
	if err := attachTo(t, p, &lo, Driver); !errors.Is(err, ErrNoDriverMode) {
		t.Errorf("driver mode on lo: %v, want ErrNoDriverMode", err)
	}
	if err := attachTo(t, p, &pair.B, Driver); !errors.Is(err, ErrDriverRefused) {
		t.Errorf("driver mode without multi-buffer at MTU 9000: %v, want ErrDriverRefused", err)
	}
	if p.Mode() != Any {
		t.Errorf("mode %v on no interface", p.Mode())
	}
	if err := attachTo(t, p, &lo, Any); err != nil || p.Mode() != Generic {
		t.Errorf("any mode on lo: %v, %v", p.Mode(), err)
	}
	if err := attachTo(t, p, &pair.B, Any); !errors.Is(err, ErrAttached) {
		t.Errorf("second interface: %v, want ErrAttached", err)
	}
	multi := mustLoad(t, Config{MultiBuffer: true})
	if err := attachTo(t, multi, &pair.B, Any); err != nil || multi.Mode() != Driver {
		t.Errorf("any mode with multi-buffer on veth: %v, %v", multi.Mode(), err)
	}
	if err := mustLoad(t, Config{}).Attach(1<<30, Any); err == nil {
		t.Error("attached to an interface that does not exist")
	}
}

func TestCloseTakesTheProgramOff(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	p := mustLoad(t, Config{})
	testenv.Must(t, attachTo(t, p, &pair.B, Driver))
	if programOn(t, &pair.B) == 0 {
		t.Fatal("no program on the interface")
	}
	testenv.Must(t, p.Close())
	if id := programOn(t, &pair.B); id != 0 {
		t.Errorf("program %d is still there after Close", id)
	}
}

// crashIn is set for a child process of the test: it attaches to the interface of this name and
// waits until it is killed.
const crashIn = "UNIFIEDD_TEST_CRASH_INTERFACE"

func TestCrashTakesTheProgramOff(t *testing.T) {
	if name := os.Getenv(crashIn); name != "" {
		attachAndWait(t, name)
		return
	}
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	child := pair.B.Command(os.Args[0], "-test.run=^TestCrashTakesTheProgramOff$", "-test.timeout=60s")
	child.Env = append(os.Environ(), crashIn+"="+pair.B.Ifname)
	testenv.Must(t, child.Start())
	testenv.Wait(t, 20*time.Second, "the child to attach", func() bool { return programOn(t, &pair.B) != 0 })
	testenv.Must(t, child.Process.Kill())
	if err := child.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	testenv.Wait(t, 10*time.Second, "the kernel to take the program off", func() bool { return programOn(t, &pair.B) == 0 })
}

func TestReplaceLosesNoPacket(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	p := mustLoad(t, Config{Filter: mustParse(t, "udp port 7")})
	testenv.Must(t, attachTo(t, p, &pair.B, Driver))
	done := make(chan struct{})
	var frames [][]byte
	for i := range uint64(20000) {
		frames = append(frames, testenv.UDP(&pair.A, &pair.B, 7, i, 100))
	}
	sender := testenv.NewSender(t, &pair.A)
	go func() {
		defer close(done)
		sendPaced(t, sender, frames)
	}()
	replaced := 0
	for running := true; running; replaced++ {
		testenv.Must(t, p.Replace(mustParse(t, []string{"udp port 8", "udp port 7"}[replaced%2])))
		select {
		case <-done:
			running = false
		default:
		}
	}
	want := len(frames) - int(sender.Refused())
	c := awaitTotal(t, p, want)
	t.Logf("%d filters, %+v", replaced, c)
	if got := int(c.Total().Packets); got != want {
		t.Errorf("%d packets counted, %d sent", got, want)
	}
	if replaced < 4 || c[NoMatch].Packets == 0 || c[NoSocket].Packets == 0 {
		t.Errorf("%d filters and %+v: the test shows little", replaced, c)
	}
}

// sendPaced sends in bursts that the other end keeps up with.
func sendPaced(t *testing.T, sender *testenv.Sender, frames [][]byte) {
	for i, frame := range frames {
		if i%50 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
		if _, err := sender.Send(frame); err != nil {
			t.Error(err)
			return
		}
	}
}

// xdpContext is struct xdp_md.
type xdpContext struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// TestMetadataRefusalIsSeen runs the program on a packet that already has the most metadata that
// the kernel allows, so that there is no room for more.
func TestMetadataRefusalIsSeen(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	socket := newXSK(t, &pair.B, 0)
	packet := testenv.UDP(&pair.A, &pair.B, 7, 0, 100)
	for _, timestamps := range []bool{false, true} {
		p := mustLoad(t, Config{Timestamps: timestamps})
		testenv.Must(t, p.SetSocketOf(0, 0, socket.fd))
		if got := run(t, p, packet); got != Redirected || p.MetaRefused() {
			t.Fatalf("with room: %v, refused %v", got, p.MetaRefused())
		}
		runFullMeta(t, p, packet)
		if p.MetaRefused() != timestamps {
			t.Errorf("timestamps %v: refused %v", timestamps, p.MetaRefused())
		}
		if got := mustCount(t, p)[Redirected].Packets; got != 2 {
			t.Errorf("timestamps %v: %d packets redirected, want 2", timestamps, got)
		}
	}
}

// runFullMeta runs the program with the most metadata that this kernel accepts: 32 bytes before
// Linux 6.7, and as much as fits the headroom since.
func runFullMeta(t *testing.T, p *Program, packet []byte) {
	t.Helper()
	var err error
	for meta := 252; meta >= 32; meta -= 4 {
		data := append(make([]byte, meta), packet...)
		context := xdpContext{Data: uint32(meta), DataEnd: uint32(len(data))}
		if _, err = p.program.Run(&ebpf.RunOptions{Data: data, Context: context}); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// attachAndWait is the child process: its program stays on the interface until the process is
// killed.
func attachAndWait(t *testing.T, name string) {
	p := mustLoad(t, Config{Timestamps: true})
	testenv.Must(t, p.Attach(mustIndex(t, name), Any))
	time.Sleep(time.Minute)
}
