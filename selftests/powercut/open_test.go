package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/export"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// errAlien reports a packet that the guest did not send, or one with other bytes.
var errAlien = errors.New("a packet is not what was sent")

// bench opens disk states with some of a record's flows: its captures, its logs or its targets.
type bench struct {
	*record
	flows []flow
	pair  *testenv.Pair
}

// captureBench opens captures. Each flow gets an interface in the namespace of pair.B.
func captureBench(t *testing.T, r *record) *bench {
	t.Helper()
	b := &bench{r, r.captures, testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})}
	for _, f := range b.flows {
		b.pair.B.Run(t, "ip", "link", "add", f.name(), "type", "veth", "peer", "name", f.name()+"x")
		b.pair.B.Run(t, "ip", "link", "set", f.name(), "up")
		b.pair.B.Run(t, "ip", "link", "set", f.name()+"x", "up")
	}
	return b
}

// logBench opens logs. Their clients are in the namespace of pair.A.
func logBench(t *testing.T, r *record) *bench {
	t.Helper()
	return &bench{r, r.logs, testenv.NewPair(t, testenv.PairOptions{})}
}

// state is an opened disk after a cut.
type state struct {
	*bench
	t       *testing.T
	begun   []flow
	images  []string // of the partitions
	devices []string // the loop devices of images
	dir     string   // mount point of the file system
}

// memory makes a memfd with the bytes and returns its path. The end of the test closes it.
func memory(t *testing.T, name string, b []byte) string {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	testenv.Must(t, err)
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd)
}

// try opens a disk after a cut and returns what is wrong with it. With goOn clients append to the
// newest log.
func (b *bench) try(t *testing.T, image []byte, at int, goOn bool) error {
	t.Helper()
	claims := b.claimed(at)
	s := &state{bench: b, t: t, begun: b.begun(claims)}
	for _, p := range parts[:3] {
		s.images = append(s.images, memory(t, "part", p.Of(image)))
	}
	if first := b.flows[0]; first.isLog() || first.isTarget() {
		if err := s.mount(); err != nil {
			return err
		}
		if first.isTarget() {
			return s.tryTargets(durableOf(claims))
		}
		return s.tryLogs(claims, goOn)
	}
	durable := durableOf(claims)
	err := s.inspect(durable, "before recovery", true)
	if e := s.mount(); e != nil {
		return errors.Join(err, e)
	}
	if e := s.recover(); e != nil {
		return errors.Join(err, e)
	}
	return errors.Join(err, s.inspect(durable, "after recovery", false))
}

// mount makes loop devices of the partitions and mounts the file system. The kernel replays its journal.
func (s *state) mount() error {
	t := s.t
	for _, image := range s.images {
		s.devices = append(s.devices, testenv.Loop(t, image, 0))
	}
	s.dir = t.TempDir()
	if err := unix.Mount(s.devices[0], s.dir, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount what is left: %w", err)
	}
	t.Cleanup(func() {
		testenv.Checkf(t, unix.Unmount(s.dir, 0), "unmount %s", s.dir)
	})
	return nil
}

// path is the path prefix of a flow's files, or its device.
func (s *state) path(f flow) string {
	if f.onDevice() {
		return s.devices[f.part]
	}
	return f.prefix(s.dir)
}

// recover makes the daemon recover all captures.
func (s *state) recover() error {
	var text []string
	for _, f := range s.begun {
		text = append(text, f.yaml(f.name(), s.dir, s.devices[f.part]))
	}
	d := launch(s.t, s.program, &s.pair.B, "ordinary", text...)
	d.Running(s.t)
	d.Terminate(s.t)
	return s.complaint(d.Log.String())
}

// complaint returns an error if the daemon's log reports lost data or an error.
func (s *state) complaint(log string) error {
	for _, bad := range []string{"is shorter than its durable position", "records that were durable are missing", "level=ERROR"} {
		if strings.Contains(log, bad) {
			return fmt.Errorf("%w: the daemon says so:\n%s", errLost, log)
		}
	}
	return nil
}

// inspect checks the packets of all flows, or only of those on devices.
func (s *state) inspect(durable map[uint32]uint64, when string, devices bool) error {
	var errs []error
	for _, f := range s.begun {
		var found []uint64
		var err error
		switch {
		case f.onDevice():
			found, err = s.onDevice(f)
		case devices:
			continue
		default:
			found, err = s.inFiles(f)
		}
		if err == nil {
			err = check(found, durable[uint32(f.number)], f.onDevice())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("flow %d, %s: %w", f.number, when, err))
		}
	}
	return errors.Join(errs...)
}

// inFiles returns the numbers of a flow's packets in its files.
func (s *state) inFiles(f flow) (all []uint64, err error) {
	names, err := filepath.Glob(f.prefix(s.dir) + "-*.pcapng")
	sort.Strings(names)
	for _, name := range names {
		captured, e := testenv.ReadCapture(s.t, name)
		if err = errors.Join(err, e); e != nil {
			err = fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		some, e := s.numbers(f, captured)
		all, err = append(all, some...), errors.Join(err, e)
	}
	return all, err
}

// spare is how many segments of a full ring may be missing: the one that the flow was writing at
// the cut, the one that it had prepared, and the same two of the daemon that recovers.
const spare = 4

// onDevice returns the numbers of a flow's packets in its ring. The ring must not have overwritten
// more segments than necessary.
func (s *state) onDevice(f flow) ([]uint64, error) {
	file, err := os.Open(s.images[f.part])
	testenv.Must(s.t, err)
	defer file.Close()
	found, err := ring.Find(file, uint64(parts[f.part].Length))
	if errors.Is(err, ring.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var plain bytes.Buffer
	x := export.New(&plain, export.Select{})
	err = x.AddRing(file, found.Ring)
	sum, e := x.Close()
	if err = errors.Join(err, e); err != nil || sum.Packets == 0 {
		return nil, err
	}
	captured, err := testenv.ReadCapture(s.t, memory(s.t, "export", plain.Bytes()))
	if err != nil {
		return nil, err
	}
	all, err := s.numbers(f, captured)
	if err == nil && all[0] > 0 && sum.Segments+spare < found.Slots {
		err = fmt.Errorf("%w: %d segments are left of %d", errLost, sum.Segments, found.Slots)
	}
	return all, err
}

// numbers returns the numbers of a flow's packets. Each must have the bytes that the guest sent.
func (s *state) numbers(f flow, captured []testenv.Captured) (all []uint64, err error) {
	for _, p := range captured {
		n, ok := testenv.Sequence(p.Data)
		if !ok || !bytes.Equal(p.Data, f.packet(s.pair, n)) {
			return all, fmt.Errorf("%w: %x, behind %d others", errAlien, p.Data, len(all))
		}
		all = append(all, n)
	}
	return all, nil
}
