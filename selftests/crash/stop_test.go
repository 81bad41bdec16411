package crash

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// ended matches the daemon's log message about a flow that ended without an error.
var ended = regexp.MustCompile(`msg="flow ended" flow=cap packets=(\d+) durable_packets=(\d+) dropped=(\d+)`)

// TestStop: a daemon that is stopped under traffic leaves all received packets in its files, and
// nothing else.
func TestStop(t *testing.T) {
	for name, to := range map[string]string{
		"one segment":   "layout: packed, durable: 300ms, segment: {size: 32MiB}, prepare: allocate",
		"slots":         "layout: slot, durable: written, segment: {size: 3MiB}",
		"many segments": "layout: packed, durable: written, segment: {size: 1MiB}, prepare: none, flush: 1s",
	} {
		t.Run(name, func(t *testing.T) {
			if name != "many segments" {
				testenv.Long(t, "the case of many segments has prepared files and files that are full")
			}
			testenv.Root(t)
			testenv.HugePages(t, 66<<20)
			p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
			stopUnderTraffic(t, p, to)
		})
	}
}

func stopUnderTraffic(t *testing.T, p *testenv.Pair, to string) {
	dir := testenv.DiskDir(t)
	d := launch(t, &p.B, dir, fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 16}
flows:
  - name: cap
    from: {interface: %s, ring: 4096}
    to: {file: %s/cap, %s}
`, p.B.Ifname, dir, to))
	d.Running(t)
	traffic := send(t, p, 0, 20000)
	s := d.Until(t, "packets to arrive", func(s *status.Daemon) bool { return s.Flows[0].Packets > 3000 })
	d.Terminate(t)
	traffic.halt()
	found := ended.FindStringSubmatch(d.Log.String())
	if found == nil {
		t.Fatalf("the log does not say how the flow ended\n%s", d.Log)
	}
	received, _ := strconv.ParseUint(found[1], 10, 64)
	if found[1] != found[2] || received < s.Flows[0].Packets {
		t.Errorf("%s received, %s durable, and there were %d before", found[1], found[2], s.Flows[0].Packets)
	}
	files := segments(t, dir)
	read(t, files)
	all := numbers(t, files)
	if uint64(len(all)) != received {
		t.Errorf("%d packets were received, the files have %d", received, len(all))
	}
	dropped, _ := strconv.ParseUint(found[3], 10, 64) // until the end, not only until the status above
	contiguous(t, all, 0, uint64(len(all)), &status.Flow{Dropped: map[string]uint64{"all": dropped}})
	if left := prepared(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(d.Socket); err == nil {
		t.Error("the control socket is left behind")
	}
}

// TestImpatience: a second signal ends the daemon at once.
func TestImpatience(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 66<<20)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	full := testenv.Ext4(t, 8<<20)
	d := launch(t, &p.B, testenv.DiskDir(t), fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 16}
flows:
  - name: cap
    from: {interface: %s, ring: 4096}
    to: {file: %s/cap, segment: {size: 32MiB}, prepare: none, flush: 10ms}
`, p.B.Ifname, full))
	d.Running(t)
	traffic := send(t, p, 0, 20000)
	d.Until(t, "the disk to be full", func(s *status.Daemon) bool { return s.Flows[0].State == status.Waiting })
	traffic.halt()
	begin := time.Now()
	d.Signal(t) // the daemon waits for space on the disk
	time.Sleep(1500 * time.Millisecond)
	select {
	case <-d.Exited:
		t.Fatalf("it ended although packets wait for room on the disk\n%s", d.Log)
	default:
	}
	d.Signal(t)
	d.Wait(t)
	if took := time.Since(begin); d.Err == nil || took > 20*time.Second {
		t.Errorf("after %v: %v", took, d.Err)
	}
	// The kernel closes the files of a dead process's ring asynchronously.
	testenv.Wait(t, 10*time.Second, "the files to be closed", func() bool {
		return unix.Mount("", full, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") == nil
	})
}
