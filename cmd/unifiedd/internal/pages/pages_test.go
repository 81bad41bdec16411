package pages

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/record"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

func TestFor(t *testing.T) {
	node := 1
	for _, test := range []struct {
		pages config.Pages
		node  *int
		want  []Need
	}{
		{config.Pages2MiB, nil, []Need{{umem.Huge2M, -1, 258 << 20}}},
		{config.Pages1GiB, &node, []Need{{umem.Huge1G, 1, 256 << 20}, {umem.Huge2M, 1, 2 << 20}}},
		{config.PagesOrdinary, nil, nil},
	} {
		r := config.Default().Region
		r.Pages, r.Node = test.pages, test.node
		if diff := cmp.Diff(test.want, For(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.pages, diff)
		}
	}
}

// holder is set in the environment of a process that reserves, says so, and waits to
// be killed; where is its place for records.
const holder, where = "UNIFIEDD_TEST_HOLDER", "UNIFIEDD_TEST_PLACE"

func TestMain(m *testing.M) {
	if os.Getenv(holder) == "" {
		os.Exit(m.Run())
	}
	place = os.Getenv(where)
	_, total := count(nil)
	h, err := Reserve(four())
	fmt.Println(total, h.Added(), err)
	select {}
}

func count(t *testing.T) (free, total uint64) {
	free, total, err := umem.FreePages(umem.Huge2M, -1)
	if err != nil {
		t.Fatal(err)
	}
	return free, total
}

// four is four pages more than are free.
func four() []Need {
	free, _ := count(nil)
	return []Need{{umem.Huge2M, -1, (free + 4) * umem.Huge2M.Bytes()}}
}

// ownPlace has records lie where no others do.
func ownPlace(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	before := place
	place = filepath.Join(t.TempDir(), "pages-")
	t.Cleanup(func() { place = before })
}

func records() []string {
	found, _ := filepath.Glob(place + "*")
	return found
}

// sometime tries a few times: others may change the reservation in between.
func sometime(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for range 5 {
		if err = try(); err == nil {
			return
		}
	}
	t.Error(err)
}

// TestGiveBack reserves and gives back, twice, which is once.
func TestGiveBack(t *testing.T) {
	ownPlace(t)
	sometime(t, func() error {
		_, before := count(t)
		h, err := Reserve(four())
		if err != nil {
			t.Fatal(err)
		}
		added, noted := h.Added(), len(records())
		_, during := count(t)
		for range 2 {
			if err := h.GiveBack(); err != nil {
				t.Error(err)
			}
		}
		if _, after := count(t); during != before+added || added < 4 || after != before || noted != 1 || len(records()) != 0 {
			return fmt.Errorf("%d pages, then %d with %d added and %d noted, and %d remain, %v", before, during, added, noted, after, records())
		}
		return nil
	})
}

// TestKilled kills a process that has reserved, and reserves again.
func TestKilled(t *testing.T) {
	ownPlace(t)
	sometime(t, func() error {
		before, during := killed(t)
		if err := Sweep(); err != nil {
			t.Fatal(err)
		}
		if _, after := count(t); during < before+4 || after != before || len(records()) != 0 {
			return fmt.Errorf("%d pages, %d after the kill, and %d remain, %v", before, during, after, records())
		}
		return nil
	})
}

// killed has a process reserve and die, and counts pages before and afterwards.
func killed(t *testing.T) (before, after uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holder+"=1", where+"="+place)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var added uint64
	if _, e := fmt.Sscan(line, &before, &added); err != nil || e != nil || !strings.Contains(line, "<nil>") {
		t.Errorf("%q: %v, %v", line, err, e)
	}
	if err := Sweep(); err != nil || len(records()) != 1 {
		t.Errorf("while its process lives, the record is swept: %v, %v", err, records())
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_, after = count(t)
	return before, after
}

// TestKilledBetween: what was noted and not made is given back as far as it is there.
func TestKilledBetween(t *testing.T) {
	ownPlace(t)
	_, before := count(t)
	r, err := record.New(place)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Put([]umem.Raise{{Pages: umem.Huge2M, Node: -1, From: before + 1<<20, By: 7}}); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := Sweep(); err != nil || len(records()) != 0 {
		t.Errorf("%v, %v", err, records())
	}
	if _, after := count(t); after+7 <= before {
		t.Errorf("%d pages, and %d after a raise that was never made was taken back", before, after)
	}
}

// TestSweepForeign: a record that makes no sense is named and changes nothing.
func TestSweepForeign(t *testing.T) {
	ownPlace(t)
	name := place + "x"
	if err := os.WriteFile(name, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("sweep: %v", err)
	}
}
