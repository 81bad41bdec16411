package crash

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// TestKillOnDevice: after a kill at a random moment, the ring on a device has all durable packets
// when the next daemon has recovered it.
func TestKillOnDevice(t *testing.T) {
	testenv.Long(t, "TestKill kills a daemon that writes files")
	kills, seed := setting.Number(t, "UNIFIEDD_KILLS", few), setting.Seed(t)
	t.Logf("UNIFIEDD_KILLS=%d", kills)
	testenv.Root(t)
	testenv.HugePages(t, 66<<20)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	k := &killer{t: t, Pair: p, dir: testenv.DiskDir(t), random: rand.New(rand.NewPCG(seed, 1)), long: kills > few}
	device := testenv.Loop(t, testenv.DiskFile(t, 96<<20), 0) // 23 segments of 4 MiB
	var before *life
	for i := uint64(0); ; i++ {
		settings := fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 16}
flows:
  - name: cap
    from: {interface: %s, ring: 4096}
    to: {device: %s, layout: %s, segment: {size: 4MiB}, flush: 20ms, durable: %s}
`, k.B.Ifname, device, []string{"packed", "slot"}[i%2], []string{"20ms", "100ms", "1ms"}[i%3])
		pages := max(0, orphanPages(t))
		d := launch(t, &k.B, k.dir, settings)
		d.Running(t)
		k.recovered += strings.Count(d.Log.String(), "segment recovered")
		k.onDevice(device, before)
		if !k.goOn(i, kills) {
			d.Terminate(t)
			break
		}
		before = &life{first: (i + 1) << 32}
		traffic := send(t, k.Pair, before.first, 12000)
		for end := time.Now().Add(k.span()); time.Now().Before(end); {
			s, err := d.Status()
			if err != nil {
				t.Fatalf("status: %v\n%s", err, d.Log)
			}
			before.see(t, s.Flows[0])
			time.Sleep(time.Duration(k.random.IntN(3000)) * time.Microsecond)
		}
		meanwhile := k.export(device) // while the daemon writes it
		d.Kill()
		traffic.halt()
		k.exported(meanwhile)
		k.nothingLeft(pages)
	}
	if k.recovered == 0 {
		t.Errorf("no segment needed recovery: %d kills hit nothing", max(kills, enough))
	}
	t.Logf("%d durable packets, %d segments recovered", k.durable, k.recovered)
}

// export exports the ring to a file.
func (k *killer) export(device string) (file string) {
	k.t.Helper()
	out := filepath.Join(k.dir, "export.pcapng")
	if said, err := exec.Command(program, "export", "-r", device, "-w", out).CombinedOutput(); err != nil {
		k.t.Fatalf("export: %v\n%s", err, said)
	}
	return out
}

// exported returns the numbers of the packets in that file. The packets must be intact and in order.
func (k *killer) exported(file string) []uint64 {
	t := k.t
	t.Helper()
	all := numbers(t, []string{file})
	if !slices.IsSorted(all) {
		t.Errorf("what is exported is not in order")
	}
	if len(all) > 0 {
		read(t, []string{file})
	}
	return all
}

// onDevice verifies the packets of the life before on the device.
func (k *killer) onDevice(device string, l *life) {
	all := k.exported(k.export(device))
	if l == nil {
		return
	}
	ours := slices.DeleteFunc(all, func(n uint64) bool { return n < l.first })
	contiguous(k.t, ours, l.first, max(l.last.Durable.Packets, l.last.Written.Packets), &l.last)
	k.durable += l.last.Durable.Packets
}
