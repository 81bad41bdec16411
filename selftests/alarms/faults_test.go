package alarms

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/internal/testenv/etcdserver"
)

// fault is a fault, what must name it, and what must explain it. Its alerts are those of the daemon that it happens
// to.
type fault struct {
	name    string
	prepare func(s *scene) (inject, mend func()) // launches the daemon; all is well until inject
	alerts  []string                             // each must fire
	also    []string                             // consequences, which may fire
	ask     func(s *scene) string                // a command of the program
	says    []string                             // each must be in its output
}

// lossy are the alerts about packets that are lost when a flow does not keep up.
var lossy = []string{"UnifieddRingFull", "UnifieddRingShort", "UnifieddNoFrames", "UnifieddCardFull", "UnifieddPacketsLost", "UnifieddBackPressure", "UnifieddDiskBehind"}

// faults returns all faults.
func faults() []fault {
	all := []fault{
		{name: "card down", prepare: cardDown, alerts: []string{"UnifieddFlowWaits"}, ask: (*scene).status, says: []string{"waiting", "is down"}},
		{name: "no huge pages", prepare: noHugePages, alerts: []string{"UnifieddDown"}, ask: (*scene).doctor, says: []string{" needed", "nr_hugepages"}},
		{name: "disk full", prepare: diskFull, alerts: []string{"UnifieddDiskFull"}, also: append([]string{"UnifieddFlowWaits", "UnifieddDiskErrors"}, lossy...),
			ask: (*scene).status, says: []string{"make room"}},
		{name: "disk failing", prepare: diskFails, alerts: []string{"UnifieddDiskErrors"}, also: append([]string{"UnifieddFlowDown", "UnifieddFlowWaits", "UnifieddWriteFailed"}, lossy...),
			ask: (*scene).status, says: []string{"input/output error", "start the flow again"}},
		{name: "disk slow", prepare: diskSlow, alerts: []string{"UnifieddBackPressure"}, also: lossy, ask: (*scene).status, says: []string{"was slower than its source"}},
		{name: "peer gone", prepare: peerGone, alerts: []string{"UnifieddPeerDown"}, also: append([]string{"UnifieddFlowWaits", "UnifieddPeerLoses"}, lossy...),
			ask: (*scene).status, says: []string{"sink (10.78.1.1:7481): ", "connection refused"}},
		{name: "certificate expired", prepare: certificateExpires, alerts: []string{"UnifieddCertificateExpired"}, also: append([]string{"UnifieddPeerDown", "UnifieddFlowWaits", "UnifieddPeerLoses"}, lossy...),
			ask: func(s *scene) string { return s.status() + s.doctor() }, says: []string{"has expired at", "peers refuse it", "replace it, and unifiedd reload"}},
		{name: "ring too small", prepare: ringTooSmall, alerts: []string{"UnifieddRingShort"}, also: []string{"UnifieddRingFull", "UnifieddCardFull", "UnifieddPacketsLost"},
			ask: (*scene).status, says: []string{"use a larger from.ring than 64"}},
		{name: "worker starved", prepare: workerStarved, alerts: []string{"UnifieddWorkerStarved"}, also: lossy, ask: (*scene).status, says: []string{"did not poll its flows for 20 ms or longer"}},
		{name: "etcd gone", prepare: etcdGone, alerts: []string{"UnifieddRegistryGone"}, ask: func(s *scene) string { return s.status() + s.doctor() },
			says: []string{"etcd does not answer since", "Flows go on", "does not answer: "}},
		{name: "daemon killed", prepare: daemonKilled, alerts: []string{"UnifieddDown"},
			ask: func(s *scene) string {
				return s.status() + s.say("trace", "--dir", filepath.Join(s.dir, "control.trace"))
			}, says: []string{"does it run", "flow capture", "which has ended"}},
	}
	if runtime.GOARCH == "amd64" { // the injection is machine code
		all = append(all, fault{name: "clock jump", prepare: clockJumps, alerts: []string{"UnifieddClockSet", "UnifieddClockApart"}, ask: (*scene).status, says: []string{"clock was set 1 time, last by +5.0 s"}})
	}
	return all
}

// toFiles are the settings of a capture to files in a directory.
func toFiles(dir string) string {
	return fmt.Sprintf("file: %q, segment: {size: 2MiB, keep: 4}, prepare: none", filepath.Join(dir, "capture"))
}

// steady launches a daemon that captures to files on the system's disk.
func steady(s *scene) {
	s.t.Helper()
	s.launch(s.capture("1ms", ", ring: 2048", toFiles(testenv.DiskDir(s.t))))
	s.traffic(200)
	s.flowing()
}

// registry starts an etcd beside the daemon, and returns the settings with which the daemon registers there.
func (s *scene) registry() (e *etcdserver.Server, settings string) {
	s.t.Helper()
	e = etcdserver.Start(s.t, etcdserver.Options{At: s.p.B.Namespace, Port: 2379})
	return e, fmt.Sprintf("cluster: {resolver: etcd, name: daemon, endpoints: [%q]}\n", e.URL)
}

func etcdGone(s *scene) (inject, mend func()) {
	e, settings := s.registry()
	s.launch(settings + s.capture("1ms", ", ring: 2048", toFiles(testenv.DiskDir(s.t))))
	s.traffic(200)
	s.flowing()
	s.d.Until(s.t, "the registration", func(d *status.Daemon) bool { return d.Cluster.Registered })
	return e.Kill, func() { e.Again(s.t) }
}

func cardDown(s *scene) (inject, mend func()) {
	steady(s)
	return func() { s.p.B.SetDown(s.t) }, func() { s.p.B.SetUp(s.t) }
}

// noHugePages: the daemon is started again, and needs more pages than any machine of the tests has.
func noHugePages(s *scene) (inject, mend func()) {
	steady(s)
	return func() {
		s.d.Terminate(s.t)
		text := strings.Replace(s.text, "size: 32MiB", "size: 1TiB", 1)
		s.d = launchOnly(s, text)
		s.d.Wait(s.t)
		if s.d.Err == nil {
			s.t.Error("a daemon ran without enough huge pages")
		}
	}, nil
}

func diskFull(s *scene) (inject, mend func()) {
	dir := smallDisk(s.t)
	s.launch(s.capture("1ms", ", ring: 2048", fmt.Sprintf("file: %q, segment: {size: 2MiB}, prepare: allocate, keep_free: 4MiB", filepath.Join(dir, "capture"))))
	s.traffic(200)
	s.flowing()
	ballast := filepath.Join(dir, "ballast")
	return func() {
		testenv.Must(s.t, fill(ballast))
	}, func() { os.Remove(ballast) }
}

// smallDisk makes and mounts a file system of 64 MiB. Its end waits for what the kernel still writes for a daemon that
// was killed.
func smallDisk(t *testing.T) (dir string) {
	t.Helper()
	device := testenv.Loop(t, testenv.DiskFile(t, 64<<20), 0)
	if out, err := exec.Command(testenv.Tool(t, "mkfs.ext4"), "-q", "-F", "-m", "0", "-O", "^has_journal", device).CombinedOutput(); err != nil {
		t.Fatalf("make a file system: %v\n%s", err, out)
	}
	dir = t.TempDir()
	testenv.Mount(t, device, dir)
	return dir
}

// fill makes a file that takes all free space.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	end := int64(0)
	for size := int64(1 << 20); size >= 4096; size /= 2 {
		for err == nil {
			if err = unix.Fallocate(int(f.Fd()), 0, end, size); err == nil {
				end += size
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
		err = nil
	}
	return nil
}

// diskFails: a device that compresses into memory gets no more memory, so that writes fail.
func diskFails(s *scene) (inject, mend func()) {
	device := testenv.Zram(s.t, 96<<20)
	limit := func(bytes string) {
		testenv.Must(s.t, os.WriteFile("/sys/block/"+filepath.Base(device)+"/mem_limit", []byte(bytes), 0))
	}
	s.launch(s.capture("1ms", ", ring: 2048", fmt.Sprintf("device: %q, layout: packed, segment: {size: 8MiB}", device)))
	s.traffic(2000)
	s.flowing()
	return func() { limit("4096") }, nil
}

// slowDisk is a disk in a file that takes its time for each write.
type slowDisk struct {
	*os.File
	size int64
	each atomic.Int64 // nanoseconds
}

func (d *slowDisk) Size() int64 { return d.size }

// WriteAt writes after a while.
func (d *slowDisk) WriteAt(b []byte, at int64) (int, error) {
	time.Sleep(time.Duration(d.each.Load()))
	return d.File.WriteAt(b, at)
}

func diskSlow(s *scene) (inject, mend func()) {
	const size = 256 << 20
	f, err := os.OpenFile(testenv.DiskFile(s.t, size), os.O_RDWR, 0)
	testenv.Must(s.t, err)
	s.t.Cleanup(func() { f.Close() })
	disk := &slowDisk{File: f, size: size}
	device, _ := testenv.Attached(s.t, testenv.ServedFile(s.t, disk))
	text := s.capture("1ms", ", ring: 2048", fmt.Sprintf("device: %q, layout: packed, segment: {size: 8MiB}", device))
	s.launch(strings.Replace(text, "name: capture\n", "name: capture\n    watermarks: {high: 1024, low: 256}\n", 1))
	s.traffic(2000)
	s.flowing()
	return func() { disk.each.Store(int64(2 * time.Second)) }, func() { disk.each.Store(0) }
}

func peerGone(s *scene) (inject, mend func()) {
	sink := s.sink("")
	s.launch(s.feed(""))
	s.connected()
	return sink.Kill, nil
}

// connected waits until the peer is connected and gets messages.
func (s *scene) connected() {
	s.t.Helper()
	s.d.Until(s.t, "messages at the peer", func(d *status.Daemon) bool {
		return d.Flows[0].Sends != nil && d.Flows[0].Sends.Peers[0].Acknowledged > 20
	})
}

// certificateExpires: somebody replaces the certificate by one of last year, and reloads.
func certificateExpires(s *scene) (inject, mend func()) {
	a := authority.New(s.t)
	names := func(end time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-1000*time.Hour), time.Now().Add(end)
			c.IPAddresses = append(c.IPAddresses, []byte{10, 78, 1, 1}, []byte{10, 78, 1, 2})
		}
	}
	tls := func(certificate, key string) string {
		return fmt.Sprintf("tls: {certificate: %q, key: %q, authority: %q}\n", certificate, key, a.File())
	}
	s.sink(tls(a.Issue(s.t, "sink", names(2400*time.Hour))))
	certificate, key := a.Issue(s.t, "feed", names(2400*time.Hour))
	s.launch(s.feed(tls(certificate, key)))
	s.connected()
	return func() {
		a.Issue(s.t, "feed", names(-time.Hour)) // the same files
		if said, err := s.d.Control("reload"); err != nil {
			s.t.Fatalf("reload: %v\n%s", err, said)
		}
	}, nil
}

// ringTooSmall: bursts that are longer than the ring.
func ringTooSmall(s *scene) (inject, mend func()) {
	s.launch(s.capture("10ms", ", ring: 64", toFiles(testenv.DiskDir(s.t))))
	s.traffic(50) // a stall of a second loses none
	s.flowing()
	raw := testenv.NewSender(s.t, &s.p.A)
	frame := testenv.UDP(&s.p.A, &s.p.B, 5000, 1, 700)
	stop := func() {}
	return func() {
		stop = s.repeat(func() {
			for range 500 {
				_, _ = raw.Send(frame) // a burst may be cut short
			}
			time.Sleep(100 * time.Millisecond)
		})
	}, func() { stop() }
}

// workerStarved: the process gets no CPU for 60 ms again and again.
func workerStarved(s *scene) (inject, mend func()) {
	steady(s)
	stop := func() {}
	pid := s.pid()
	return func() {
		stop = s.repeat(func() {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			time.Sleep(60 * time.Millisecond)
			_ = syscall.Kill(pid, syscall.SIGCONT)
			time.Sleep(40 * time.Millisecond)
		})
	}, func() { stop() }
}

// pid returns the process of the daemon.
func (s *scene) pid() int {
	s.t.Helper()
	d, err := s.d.Status()
	testenv.Must(s.t, err)
	return d.PID
}

func clockJumps(s *scene) (inject, mend func()) {
	steady(s)
	return func() { shiftClock(s.t, s.pid(), 5*time.Second) }, nil
}

func daemonKilled(s *scene) (inject, mend func()) {
	steady(s)
	return func() { s.d.Kill() }, nil
}

// TestFaster: only spans change.
func TestFaster(t *testing.T) {
	got := faster(t, "        for: 120s\n        expr: "+absences+"\n        expr: changes(a[15m]) > 1 and b[1d]\n", 60)
	want := "        for: 2000ms\n        expr: rate(unifiedd_worker_absences_total[5000ms]) > 3\n        expr: changes(a[15000ms]) > 1 and b[1440000ms]\n"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
