package xdp

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// wire describes two ports on the two ends of a veth pair to the contract suite.
type wire struct {
	config Config
	frame  uint32
	mtu    int
	most   int // length of the longest message in bytes
}

func (w wire) open(t testing.TB) *porttest.Link {
	stay(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: w.mtu})
	g := newRig(t, umem.Config{Size: 8 << 20, Pages: umem.Ordinary, FrameSize: w.frame})
	shape := w.config.Shape
	l := &porttest.Link{
		Worker: g.worker, Header: packet(&pair.A, &pair.B, 0, 18)[:14], Min: 64, Max: w.most,
		Offset: 128, Room: 1600, Landing: int(shape.Capacity(g.region.FrameSize()) &^ 127),
		SilentReap: true, Timeout: testenv.Within(5 * time.Second),
		Spoil: func(f *umem.Frame) { f.Len = g.region.FrameSize() },
	}
	var from, to *Interface
	l.Reopen = func(t testing.TB) {
		for _, i := range []*Interface{from, to} {
			if i == nil {
				continue
			}
			testenv.Must(t, i.Close())
		}
		from, to = g.open(&pair.A, w.config), g.open(&pair.B, w.config)
		l.Sender, l.Receiver = from.Ports()[0], to.Ports()[0]
		if l.Scratch = metaBytes; to.Granted().ZeroCopy { // the driver's header too: virtio_net writes it there
			l.Scratch = umem.PacketHeadroom
			l.Swaps = pair.IsCard() // the emulator's wire delivers packets that wait at its end after those at its start
		}
		g.start(to)
	}
	l.Reopen(t)
	return l
}

// stay keeps the test on one processor. In generic mode packets that a thread sends from two
// processors may overtake each other, because each processor has its own queue.
func stay(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	testenv.Must(t, unix.SchedGetaffinity(0, &before))
	for cpu := range 1024 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	testenv.Must(t, unix.SchedSetaffinity(0, &one))
	t.Cleanup(func() {
		testenv.Check(t, unix.SchedSetaffinity(0, &before))
		runtime.UnlockOSThread()
	})
}

// TestPortContract: the port keeps the contract of all ports with all options.
func TestPortContract(t *testing.T) {
	plain := Config{RingSize: 128}
	with := func(change func(*Config)) Config {
		c := plain
		change(&c)
		return c
	}
	for name, w := range map[string]wire{
		"plain":       {config: plain},
		"2048":        {config: plain, frame: 2048, most: 1500},
		"timestamps":  {config: with(func(c *Config) { c.Timestamps, c.Shape.Headroom = true, 284 })},
		"always wake": {config: with(func(c *Config) { c.AlwaysWake = true })},
		"generic":     {config: with(func(c *Config) { c.Mode = bpf.Generic })},
		"busy poll":   {config: with(func(c *Config) { c.BusyPoll.Time = 20 * time.Microsecond })},
		"multi-buffer": {
			config: with(func(c *Config) { c.Shape.MultiBuffer = true }), mtu: 9000, most: 9000,
		},
	} {
		if w.most == 0 {
			w.most = 1514
		}
		if name != "plain" && testenv.Fewer(2) < 2 {
			continue // on slow machines one case represents all
		}
		t.Run(name, func(t *testing.T) {
			if w.config.Shape.MultiBuffer {
				needFragments(t)
			} else if name != "plain" {
				testenv.Long(t, "plain and multi-buffer stand for the others")
			}
			porttest.Run(t, w.open)
		})
	}
}
