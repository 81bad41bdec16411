package member

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/replica"
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// files makes the files of a member that has taken part in some elections, and whose last run, which acknowledged records
// at a level, has crashed. change changes the manifest that it has left.
func files(t *testing.T, level protocol.Durability, change func(*journal.Manifest)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "orders")
	dir, err := newfile.OpenDir(filepath.Dir(path))
	testenv.Must(t, err)
	defer dir.Close()
	state := election.First([]uint32{1, 2, 3})
	*state.Hard.Term = 7
	file, err := replica.MakeState(dir, "orders"+replica.StateSuffix, 1, state)
	testenv.Must(t, err)
	testenv.Must(t, file.Close())
	before := &Member{level: level, self: 1}
	k, err := journal.KeepFile(dir, "orders"+journal.ManifestSuffix, journal.Manifest{Oldest: 1, Next: 1, Reserved: 1, Boot: journal.BootID()}, func(*os.File) error { return nil })
	testenv.Must(t, err)
	testenv.Must(t, k.Update(true, func(n *journal.Manifest) {
		before.Manifest(n)
		change(n)
	}))
	testenv.Must(t, k.Close())
	return path
}

// opened opens a member's files, with the level of today's configuration.
func opened(t *testing.T, path string, level protocol.Durability) (*Member, error) {
	t.Helper()
	e := &pipeline.Env{Flow: config.Flow{To: config.To{File: path, Replicas: &config.Replicas{Name: "orders", Self: "a", Members: []config.Replica{{Name: "a"}, {Name: "b"}, {Name: "c"}}}}}, Log: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { testenv.Check(t, e.Undo.Run()) })
	return Prepare(e, level)
}

// TestLevelOfTheCrash: whether a member may have forgotten records is judged by what the run that crashed has promised, and
// not by what the configuration says at the next start. A boot that is not known is another boot.
func TestLevelOfTheCrash(t *testing.T) {
	same := func(*journal.Manifest) {}
	power := func(n *journal.Manifest) { n.Boot[0]++ }
	for _, c := range []struct {
		name       string
		before     protocol.Durability
		change     func(*journal.Manifest)
		now        protocol.Durability
		recovering bool
	}{
		{"received, then durable", protocol.Received, same, protocol.Durable, true},
		{"received, then written", protocol.Received, same, protocol.Written, true},
		{"written, then durable, after a loss of power", protocol.Written, power, protocol.Durable, true},
		{"written, without one", protocol.Written, same, protocol.Durable, false},
		{"written, and the boot is not known", protocol.Written, func(n *journal.Manifest) { n.Boot = [16]byte{} }, protocol.Written, true},
		{"durable, then received", protocol.Durable, power, protocol.Received, false},
		{"ended in order", protocol.Received, func(n *journal.Manifest) { n.Flags |= journal.FlagEnded }, protocol.Durable, false},
		{"of an earlier release", protocol.Durable, func(n *journal.Manifest) { n.SetLevel(0) }, protocol.Received, true},
	} {
		m, err := opened(t, files(t, c.before, c.change), c.now)
		if err != nil || m.log.Recovering != c.recovering {
			t.Errorf("%s: recovering is %v, %v", c.name, err == nil && m.log.Recovering, err)
		}
	}
}
