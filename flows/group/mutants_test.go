package group

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// mutants are faults that the simulation must find. Each replaces a text of a file.
var mutants = []struct{ name, file, old, new string }{
	{"a member votes and reports before it ends the links of earlier epochs", "member.go", "m.epoch, m.heard, r.EndLinks = epoch, false, true", "m.epoch, m.heard = epoch, false"},
	{"votes are not durable", "member.go", "r.Save, r.Confirmed = e.Save, e.Confirmed", "r.Save, r.Confirmed = false, e.Confirmed"},
	{"records of earlier epochs are counted", "commit.go", "held >= t.first && held > t.committed", "held > t.committed"},
	{"reports of recovering members count", "lead.go", "return has && !one.Log.Recovering", "return has || one.Log.Recovering"},
	{"the leader counts itself though it recovers", "lead.go", "return !own.Recovering", "return true"},
	{"one report is enough", "commit.go", "need := len(of)/2 + 1\n\t\tif witness {\n\t\t\tneed = 1", "need := 1\n\t\tif witness {\n\t\t\tneed = 1"},
	{"the old voters are not asked", "commit.go", "for _, of := range [][]uint32{c.Members.Voters, c.Members.Outgoing} {\n\t\tif len(of) == 0 {", "for _, of := range [][]uint32{c.Members.Voters} {\n\t\tif len(of) == 0 {"},
	{"the longest log wins, whatever its epoch", "table.go", "return p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Position < q.Position", "return p.Position < q.Position"},
	{"the leader does not fetch", "lead.go", "if best.From == m.config.Self {", "if true {"},
	{"followers keep what the leader does not have", "table.go", "return max(agreed, min(endA, endB))", "return max(agreed, endB+0*endA)"},
	{"an answer to an earlier report is taken", "member.go", "|| one.Serial != m.serial || m.asked != 0 || m.todo.EndLinks {", "{"},
	{"a change of members does not wait for the records", "commit.go", "Held: t.Held(), Open", "Held: ^uint64(0), Open"},
	{"committed is enough to end a change", "commit.go", "Held: t.Held(), Open", "Held: t.committed, Open"},
	{"the leader takes records before its first one is committed", "sim_client_test.go", "|| !n.commits.Open() {", "{"},
	{"a leader answers a client before it knows that it still leads", "sim_client_test.go", "|| n.sure < c.asks {", "{"},
	{"a member becomes a voter beside a witness before it has all records", "commit.go", "&& p.Safe[member] >= p.Committed", ""},
	{"one voter is enough beside a witness", "commit.go", "least = min(least, t.safe[uint64(id)])", "least = max(least, t.safe[uint64(id)])"},
	{"a member forgets that it recovers", "sim_test.go", "n.recovering = n.recovering || !n.witness", "n.recovering = false"},
	{"a member is complete too soon", "sim_test.go", "if n.until > 0 && n.safe(s) >= n.until && n.link != nil ||", "if n.link != nil ||"},
}

// TestMutants: the simulation finds each of these faults. Without UNIFIEDD_RUNS it tries every fifth.
func TestMutants(t *testing.T) {
	testenv.Long(t, "each fault is compiled")
	for i, m := range mutants {
		if i%5 != 0 && os.Getenv("UNIFIEDD_RUNS") == "" {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			run := exec.Command("go", "test", "-vet=off", "-count=1", "-overlay", overlay(t, m.file, m.old, m.new), "-run", "^TestSimulation$", ".")
			run.Env = append(os.Environ(), "UNIFIEDD_RUNS=5000")
			out, err := run.CombinedOutput()
			switch text := string(out); {
			case err == nil:
				t.Error("5000 runs find nothing")
			case strings.Contains(text, "panic: "): // of raft, which has found it
			case !strings.Contains(text, ": seed "):
				t.Errorf("it fails for another reason:\n%s", out)
			default:
				_, seed, _ := strings.Cut(text, ": seed ")
				line, _, _ := strings.Cut(seed, "\n")
				t.Log("seed " + line)
			}
		})
	}
}

// overlay writes a changed copy of a file, and returns the path of an overlay for it.
func overlay(t *testing.T, file, before, after string) string {
	text, err := os.ReadFile(file)
	testenv.Must(t, err)
	if n := strings.Count(string(text), before); n != 1 {
		t.Fatalf("%s has %q %d times, want once", file, before, n)
	}
	from, err := filepath.Abs(file)
	testenv.Must(t, err)
	dir := t.TempDir()
	changed, path := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {from: changed}})
	testenv.Must(t, err)
	for to, b := range map[string][]byte{changed: []byte(strings.Replace(string(text), before, after, 1)), path: list} {
		testenv.Must(t, os.WriteFile(to, b, 0o600))
	}
	return path
}
