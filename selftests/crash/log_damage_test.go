package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// damageRig is a log in its own directory.
type damageRig struct {
	*logKiller
	log string // path prefix of its files
}

func newDamageRig(t *testing.T) *damageRig {
	testenv.Root(t)
	testenv.HugePages(t, 66<<20+clientRegion)
	k := &logKiller{t: t, Pair: testenv.NewPair(t, testenv.PairOptions{}), dir: testenv.DiskDir(t), random: rand.New(rand.NewPCG(1, 2))}
	dir := filepath.Join(k.dir, "log")
	testenv.Must(t, os.Mkdir(dir, 0o700))
	return &damageRig{k, filepath.Join(dir, "wal")}
}

func (r *damageRig) settings() string {
	return fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 16}
flows:
  - name: wal
    from: {rdma: "roce:%s", listen: "%s:7471", clients: 2, window: 64}
    to: {file: %s, acknowledge: durable, segment: {size: 2MiB}}
`, r.B.Ifname, r.B.IP, r.log)
}

// TestNameNotFlushed: if the daemon cannot flush the names in a directory, it does not acknowledge later
// messages as durable, and the flow fails. Here the daemon loses read permission for the directory.
func TestNameNotFlushed(t *testing.T) {
	r := newDamageRig(t)
	d := launch(t, &r.B, r.dir, r.settings())
	d.Running(t)
	c := r.append(20000)
	d.Until(t, "records to be acknowledged", func(s *status.Daemon) bool { return s.Flows[0].Log.Acknowledged > 0 })
	dir := filepath.Dir(r.log)
	testenv.Must(t, os.Chmod(dir, 0o300))
	s := d.Until(t, "the flow to fail", func(s *status.Daemon) bool { return s.Flows[0].State == status.Failed })
	if !strings.Contains(s.Flows[0].Error, "flush the name of segment") || !strings.Contains(s.Flows[0].Error, "permission denied") {
		t.Errorf("why: %q", s.Flows[0].Error)
	}
	testenv.Must(t, os.Chmod(dir, 0o700))
	_ = c.Process.Kill()
	testenv.Wait(t, 10*time.Second, "the client to end", c.Over)
	acknowledged := s.Flows[0].Log.Acknowledged
	d.Terminate(t)
	if acknowledged == 0 || acknowledged > 3000 {
		t.Errorf("position %d is acknowledged: a segment has some 1900 records", acknowledged)
	}
	again := launch(t, &r.B, r.dir, r.settings())
	again.Running(t)
	if first := r.logKiller.log(again).First; first <= acknowledged {
		t.Errorf("the log continues at position %d, and position %d was acknowledged", first, acknowledged)
	}
	again.Terminate(t)
}
