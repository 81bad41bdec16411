package nvmet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// TestKill: the test kills the daemon while a host writes. The host connects to the next daemon,
// and the disk has every write that was answered.
func TestKill(t *testing.T) {
	testenv.Long(t, "it builds the daemon and kills it; TestVanish and TestHang have what a host sees")
	kills := setting.Number(t, "UNIFIEDD_KILLS", 2)
	testenv.Root(t)
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	r := &rig{T: t, listen: pair.B.IP.String() + ":4420"}
	k := &killed{rig: r, station: softStation(r, &pair.A), end: &pair.B, program: testenv.Program(t, "cmd/unifiedd"), file: filepath.Join(t.TempDir(), "unifiedd.yaml")}
	testenv.HugePages(t, 66<<20)
	r.must(os.WriteFile(k.file, fmt.Appendf(nil, `
control: {socket: %s.sock}
region: {size: 64MiB, extents: 16}
flows:
  - name: volume
    from: {device: %s}
    to: {rdma: "roce:%s", listen: %q, subsystem: %q, allow_any_host: true, clients: 8, window: 32}
`, k.file, testenv.Zram(t, killedBlocks<<12), pair.B.Ifname, r.listen, softNQN), 0o600))
	k.at = k.room(2 * killedBlocks << 12)
	next := k.station.next
	for range kills {
		k.station.next = next
		k.life()
	}
	k.station.next = next
	stop := k.launch()
	k.verify(k.comesBack(60_000))
	stop(syscall.SIGTERM)
	if k.answered < kills {
		t.Errorf("%d writes were answered: the kills hit nothing", k.answered)
	}
	t.Logf("%d kills; %d writes were answered, %d of those that were not are there", kills, k.answered, k.more)
}

// killedBlocks is the number of blocks that the host writes, of 4096 bytes each.
const killedBlocks = 64

// killed is a daemon that the test kills, and a host's knowledge of its disk.
type killed struct {
	*rig
	*station
	end            *testenv.End
	program, file  string
	group          int    // of the daemon's processes
	at             uint64 // memory for data to write, followed by memory for data to read
	versions       [killedBlocks]uint64
	open           [killedBlocks]bool // a write without an answer
	underway       int
	answered, more uint64
}

// launch starts the daemon and waits until it serves. It returns a function that ends all its
// processes by a signal.
func (k *killed) launch() func(syscall.Signal) {
	k.rig.Helper()
	c := k.end.Command(k.program, "run", "-c", k.file)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(k.file + ".log")
	k.rig.must(err)
	c.Stdout, c.Stderr = log, log
	k.rig.must(c.Start())
	k.group = c.Process.Pid
	var once sync.Once
	end := func(s syscall.Signal) {
		once.Do(func() {
			_ = syscall.Kill(-c.Process.Pid, s)
			_ = c.Wait()
			log.Close()
		})
	}
	k.rig.Cleanup(func() {
		end(syscall.SIGKILL)
		if text, _ := os.ReadFile(k.file + ".log"); k.rig.Failed() {
			k.rig.Logf("the daemon said: %s", text)
		}
	})
	testenv.Wait(k.rig, waitLimit, "the daemon to serve", func() bool {
		text, err := os.ReadFile(k.file + ".log")
		return err == nil && bytes.Contains(text, []byte("flow runs"))
	})
	return end
}

// comesBack connects as soon as the target accepts the host.
func (s *station) comesBack(silence uint32) (h *handMade) {
	s.Helper()
	next := s.next
	testenv.Wait(s, waitLimit, "the host to be let in", func() bool {
		s.next = next
		q, err := s.dial(fabrics.AdminDepth, fabrics.PrivateRequest{HostRoom: fabrics.AdminDepth, HostSends: fabrics.AdminDepth}.Bytes())
		if err != nil {
			q.close()
			return false
		}
		h, err = s.joins(q, softHost, 1, 32, silence)
		if err != nil { // the new queue pair may have the number of an old one that is not forgotten yet
			h.admin.close()
			h.queues[0].close()
		}
		return err == nil
	})
	return h
}

// life is one run of a daemon: the earlier writes are on the disk, the host writes more, and the
// test kills the daemon.
func (k *killed) life() {
	k.rig.Helper()
	kill := k.launch()
	h := k.comesBack(60_000)
	k.verify(h)
	k.underway = 0
	q := h.queues[0]
	end := time.Now().Add(time.Duration(50+k.answered%100) * time.Millisecond)
	for block := 0; time.Now().Before(end); block = (block + 1) % killedBlocks {
		k.until("an answer", func() bool { k.hears(q); return !k.open[block] && k.underway < 16 })
		k.writes(q, block)
	}
	kill(syscall.SIGKILL)
	for range 100 { // receive answers that were already sent
		k.hears(q)
		time.Sleep(100 * time.Microsecond)
	}
	go h.admin.close()
	go q.close()
}

// writes starts to write the next version of a block.
func (k *killed) writes(q *hostQueue, block int) {
	k.rig.Helper()
	at := k.at + uint64(block)<<12
	b := k.bytes(at, 4096)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(block)<<32|(k.versions[block]+1))
	}
	k.open[block] = true
	k.underway++
	k.rig.must(q.say(blocks(fabrics.OpWrite, uint64(block), 1, k.keyed(at, 4096)).append(nil, uint16(1000+block))))
}

// hears processes answers.
func (k *killed) hears(q *hostQueue) {
	q.poll()
	for _, c := range q.heard {
		if c.Status != fabrics.Success {
			k.rig.Errorf("a write: %v", c.Status)
		}
		block := c.ID - 1000
		k.versions[block]++
		k.open[block] = false
		k.underway--
		k.answered++
	}
	q.heard = q.heard[:0]
}

// verify checks that the disk has every answered write. It may or may not have the others.
func (k *killed) verify(h *handMade) {
	k.rig.Helper()
	at := k.at + killedBlocks<<12
	for block := range k.versions {
		h.queues[0].succeeds(blocks(fabrics.OpRead, uint64(block), 1, k.keyed(at, 4096)))
		b := k.bytes(at, 4096)
		found := binary.LittleEndian.Uint64(b)
		for i := 0; i < len(b); i += 8 {
			if binary.LittleEndian.Uint64(b[i:]) != found {
				k.rig.Fatalf("block %d is torn", block)
			}
		}
		version := found & (1<<32 - 1)
		switch {
		case found>>32 != uint64(block) && found != 0 || version < k.versions[block] || version > k.versions[block]+1 || version > k.versions[block] && !k.open[block]:
			k.rig.Fatalf("block %d has %#x, and version %d was answered", block, found, k.versions[block])
		case version > k.versions[block]:
			k.more++
		}
		k.versions[block], k.open[block] = version, false
	}
}

// TestVanish: a host's machine vanishes during writes and reads, and returns. The server notices
// its silence, takes all its resources back, and serves the next host.
func TestVanish(t *testing.T) {
	times := setting.Number(t, "UNIFIEDD_KILLS", 1)
	testenv.Root(t)
	testenv.Leaks(t)
	r, s, pair := newSoftPair(t)
	v := r.serve(Config{Sessions: 4, Queues: 2, Depth: 32, Capsule: 4096, Small: 16, Large: 8, Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.zram(16 << 20)}}}}})
	at, next := s.room(256<<10), s.next
	link := func(set func(netlink.Link) error) {
		pair.A.Do(t, func() {
			l, err := netlink.LinkByName(pair.A.Ifname)
			if err == nil {
				err = set(l)
			}
			r.must(err)
		})
	}
	for i := range times {
		s.next = next
		h := s.comesBack(1000)
		q := h.queues[0]
		for range 16 {
			r.must(q.say(blocks(fabrics.OpRead, 0, 64, s.keyed(at, 256<<10)).append(nil, 1)))
			r.must(q.say(blocks(fabrics.OpWrite, 64, 16, s.keyed(at, 64<<10)).append(nil, 2)))
		}
		link(netlink.LinkSetDown)
		testenv.Wait(t, waitLimit, "the server to notice", func() bool { st := v.server.Stats(); return st.Hosts == 0 && st.Queues == 0 })
		v.rest()
		if st := v.server.Stats(); st.Ended+st.Expired <= uint64(i) {
			t.Errorf("%d queues ended, %d hosts fell silent, the %dth time", st.Ended, st.Expired, i+1)
		}
		link(netlink.LinkSetUp)
		go h.admin.close()
		go q.close()
	}
	s.next = next
	s.comesBack(1000)
}
