package crash

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// TestKillLog: the daemon is killed again and again while a client appends to its log. At the end the log
// has every message once and in order. Each daemon continues after the last position that the one before
// acknowledged.
func TestKillLog(t *testing.T) {
	testenv.Long(t, "TestKill kills a daemon that captures, and flows/journal tests the recovery of logs")
	kills, seed := setting.Number(t, "UNIFIEDD_KILLS", few), setting.Seed(t)
	t.Logf("UNIFIEDD_KILLS=%d", kills)
	testenv.Root(t)
	testenv.HugePages(t, 66<<20+clientRegion)
	k := &logKiller{t: t, Pair: testenv.NewPair(t, testenv.PairOptions{}), dir: testenv.DiskDir(t), random: rand.New(rand.NewPCG(seed, 0))}
	count := messagesPerLife * (kills + 1)
	k.client = k.append(count)
	hit := uint64(0)
	for hit < kills && k.next(hit) {
		hit++
	}
	if hit == 0 {
		t.Error("no kill came before the client was done")
	}
	d := k.launch(hit)
	k.client.Await(t, clientLimit)
	d.Terminate(t)
	k.flowTest("log", "-file", filepath.Join(k.dir, "wal"), "-count", fmt.Sprint(count)).Await(t, clientLimit)
	t.Logf("%d messages and %d kills, %d acknowledged before the last one", count, hit, k.acknowledged)
}

// The client's region and its messages. For each life of the daemon the client sends for two
// seconds, which is longer than most lives.
const (
	clientRegion    = 32 << 20
	messagesPerLife = 2000
	messageRate     = 1000 // a second
)

// clientLimit is how long a client may take; after the last kill, if the daemon is killed under it.
const clientLimit = 2 * time.Minute

// logKiller is the state of TestKillLog between two kills.
type logKiller struct {
	t *testing.T
	*testenv.Pair
	dir          string
	random       *rand.Rand
	client       *daemon.Client
	acknowledged uint64 // highest position that any daemon has acknowledged
}

// settings is the configuration for life i. Layouts and durabilities alternate.
func (k *logKiller) settings(i uint64) string {
	return fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 16}
flows:
  - name: wal
    from: {rdma: "roce:%s", listen: "%s:7471", clients: 2, window: 64}
    to: {file: %s/wal, layout: %s, acknowledge: %s, segment: {size: %s}}
`, k.B.Ifname, k.B.IP, k.dir, []string{"slot", "packed"}[i%2], []string{"durable", "written", "durable"}[i%3], []string{"2MiB", "16MiB"}[k.random.IntN(2)])
}

// launch starts a daemon. It must continue after the last acknowledged position.
func (k *logKiller) launch(i uint64) *daemon.Daemon {
	k.t.Helper()
	d := launch(k.t, &k.B, k.dir, k.settings(i))
	d.Running(k.t)
	if l := k.log(d); l.First <= k.acknowledged {
		k.t.Errorf("life %d begins at position %d, and position %d was acknowledged", i, l.First, k.acknowledged)
	}
	return d
}

// log returns the daemon's status of its log.
func (k *logKiller) log(d *daemon.Daemon) *status.Log {
	k.t.Helper()
	s, err := d.Status()
	if err != nil || len(s.Flows) != 1 || s.Flows[0].Log == nil {
		k.t.Fatalf("status: %v, %+v\n%s", err, s.Flows, d.Log)
	}
	return s.Flows[0].Log
}

// next is one life of the daemon. The kill comes while the client sends. next returns false if the
// client was done before it.
func (k *logKiller) next(i uint64) bool {
	d := k.launch(i)
	begun := k.log(d).First
	testenv.Wait(k.t, 30*time.Second, "the client to come back and be acknowledged", func() bool {
		k.acknowledged = max(k.acknowledged, k.log(d).Acknowledged)
		return k.acknowledged > begun || k.client.Over()
	})
	for end := time.Now().Add(time.Duration(k.random.IntN(400)) * time.Millisecond); time.Now().Before(end); {
		k.acknowledged = max(k.acknowledged, k.log(d).Acknowledged)
		time.Sleep(time.Duration(k.random.IntN(2000)) * time.Microsecond)
	}
	over := k.client.Over()
	d.Kill()
	k.t.Logf("killed with position %d acknowledged", k.acknowledged)
	return !over
}

// append starts a client that sends count messages.
func (k *logKiller) append(count uint64) *daemon.Client {
	return k.flowTest("append", "-device", "roce:"+k.A.Ifname, "-memory", fmt.Sprint(clientRegion), "-receive-ring", "512", "-to", k.B.IP.String()+":7471",
		"-flow", "wal", "-count", fmt.Sprint(count), "-rate", fmt.Sprint(messageRate), "-timeout", "2h")
}

func (k *logKiller) flowTest(args ...string) *daemon.Client {
	k.t.Helper()
	return daemon.StartClient(k.t, flowTest, &k.A, args...)
}
