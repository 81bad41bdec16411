package replica

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestStateFile: the newest state is read, whatever a crash has left of the last write, and a damaged
// block loses none.
func TestStateFile(t *testing.T) {
	dir := t.TempDir()
	d, err := newfile.OpenDir(dir)
	testenv.Must(t, err)
	defer d.Close()
	if _, _, err := OpenState(d, "wal.group", 2); !errors.Is(err, ErrNoState) {
		t.Fatal(err)
	}
	states := make([]election.State, 4)
	for i := range states {
		states[i] = election.First([]uint32{1, 2, 3})
		states[i].Hard.Term = new(uint64(i + 1))
	}
	s, err := MakeState(d, "wal.group", 2, states[0])
	testenv.Must(t, err)
	for _, one := range states[1:3] {
		testenv.Must(t, s.Write(one))
	}
	before, err := os.ReadFile(filepath.Join(dir, "wal.group"))
	testenv.Must(t, err)
	if _, _, err := OpenState(d, "wal.group", 2); err == nil {
		t.Error("two use the file at a time")
	}
	testenv.Must(t, s.Write(states[3]))
	after, err := os.ReadFile(filepath.Join(dir, "wal.group"))
	testenv.Must(t, err)
	_ = s.Close()
	read := func(b []byte, member uint32) (election.State, error) {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, "copy.group"), b, 0o600))
		s, state, err := OpenState(d, "copy.group", member)
		if err == nil {
			_ = s.Close()
		}
		return state, err
	}
	if got, err := read(after, 2); err != nil || !proto.Equal(got.Hard, states[3].Hard) {
		t.Errorf("%v, %v", got.Hard, err)
	}
	if _, err := read(after, 3); !errors.Is(err, errMember) {
		t.Errorf("for another member: %v", err)
	}
	for at := range len(after) {
		if after[at] == before[at] {
			continue
		}
		torn := append(append([]byte(nil), after[:at]...), before[at:]...) // a crash
		if got, err := read(torn, 2); err != nil || got.Hard.GetTerm() != 3 && got.Hard.GetTerm() != 4 {
			t.Fatalf("torn at %d: epoch %d, %v", at, got.Hard.GetTerm(), err)
		}
		bad := append([]byte(nil), after...)
		bad[at] ^= 1
		if got, err := read(bad, 2); err != nil || got.Hard.GetTerm() != 4 {
			t.Fatalf("with a changed byte %d: epoch %d, %v", at, got.Hard.GetTerm(), err)
		}
	}
	if _, err := read(make([]byte, len(after)), 2); !errors.Is(err, errState) {
		t.Errorf("without a state: %v", err)
	}
}
