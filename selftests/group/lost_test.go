package group

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// wipe removes the files of a member, as a new disk or another volume of a container does.
func (r *roster) wipe(i int) {
	r.Helper()
	for _, pattern := range []string{"orders*", ".orders*"} {
		files, err := filepath.Glob(filepath.Join(r.dirs[i], pattern))
		testenv.Must(r, err)
		for _, f := range files {
			testenv.Must(r, os.Remove(f))
		}
	}
}

// refuses starts a member that has lost its files, and waits until its flow has failed with a text that names it, and no
// other one, and a remedy.
func (r *roster) refuses(i int, remedy string) {
	r.Helper()
	r.start(i)
	name, text := placeName(i), ""
	testenv.Wait(r.T, testenv.Within(limit), "the member that has lost its files to refuse", func() bool {
		s, err := r.now[i].Status()
		if err != nil || len(s.Flows) != 1 {
			return false
		}
		text = s.Flows[0].Error
		return s.Flows[0].State == "failed"
	})
	for _, want := range []string{"the files of " + name + " are lost", remedy} {
		if !strings.Contains(text, want) {
			r.Errorf("the member that has lost its files does not say %q:\n%s", want, text)
		}
	}
	r.now[i].Kill()
	r.now[i] = nil
}

// placeName is the name of the member in a place.
func placeName(i int) string { return fmt.Sprint("m", i+1) }

// replaceIt is the remedy if the others can replace a member.
func replaceIt(i int) string { return "unifiedd group replace orders " + placeName(i) + " NEW" }

// TestLostFiles: a member whose files are gone is found before it votes, and its text names it and the remedy. The others go
// on.
func TestLostFiles(t *testing.T) {
	testenv.Root(t)
	r := newRoster(t, 3, 3, -1, soon)
	r.load()
	r.committed(rate / 4)
	leader, _ := r.leader(0)
	gone := (leader + 1) % 3
	r.now[gone].Kill()
	r.now[gone] = nil
	r.wipe(gone)
	r.refuses(gone, replaceIt(gone))
	r.committed(rate / 4)
	var rest []int
	for i := range 3 {
		if i != gone {
			rest = append(rest, i)
		}
	}
	r.finish(rest...)
}

// TestLostWitness: a witness that has lost its vote does not help a member to lead that lacks acknowledged records: with both
// of them there would be a majority.
func TestLostWitness(t *testing.T) {
	testenv.Root(t)
	r := newRoster(t, 3, 3, 2, soon)
	r.load()
	r.committed(rate / 4)
	leader, _ := r.leader(0)
	behind := 1 - leader
	r.now[behind].Kill()
	r.now[behind] = nil
	r.committed(rate / 4) // without the member that is away
	r.now[2].Kill()
	r.now[2] = nil
	r.wipe(2)
	r.now[leader].Kill()
	r.now[leader] = nil
	r.start(behind)
	r.refuses(2, replaceIt(2))
	if s, err := r.now[behind].Status(); err != nil || s.Flows[0].Group == nil || s.Flows[0].Group.State != "following" || s.Flows[0].Group.Leader != "" {
		t.Errorf("the member that lacks records: %+v, %v", s.Flows[0].Group, err)
	}
	r.client.Kill() // what it has not appended has no leader
}

// TestLostLastWitness: a witness that has lost its files while one member with a log is alone, so that these two decide, says
// that nobody can replace it, and the leader refuses to try. The log of that member has every record.
func TestLostLastWitness(t *testing.T) {
	testenv.Root(t)
	r := newRoster(t, 4, 3, 2, soon)
	r.load()
	r.committed(rate / 4)
	leader, _ := r.leader(0)
	away := 1 - leader
	r.now[away].Kill()
	r.now[away] = nil
	r.committed(rate / 4) // without the member that is away
	r.finishClient()
	r.now[2].Kill()
	r.now[2] = nil
	r.wipe(2)
	r.listed = 4
	r.reload()
	r.refuses(2, fmt.Sprintf("The log of member %s has every record", placeName(leader)))
	testenv.Wait(t, testenv.Within(limit), "the leader to refuse to replace the witness", func() bool {
		text, err := r.now[leader].Control("group", "replace", "orders", "m3", "m4")
		return err != nil && strings.Contains(text, "nothing can be decided")
	})
	logSum(t, r.ends[leader], r.dirs[leader]+"/orders", r.count)
}
