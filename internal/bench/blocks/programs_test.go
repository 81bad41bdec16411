package blocks

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

func TestReadResults(t *testing.T) {
	s, err := readOurs([]byte(`{"messages": 100, "seconds": 2, "latency_ns": {"p50_ns": 1000, "p99_ns": 2000, "p99_9_ns": 3000}}`))
	if want := (sample{50, 1, 2, 3}); err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = readFio([]byte(`note: x
{"jobs": [{"error": 0, "read": {"iops": 7.5, "lat_ns": {"percentile": {"50.000000": 1000, "99.000000": 2000, "99.900000": 4000}}}}]}`))
	if want := (sample{7.5, 1, 2, 4}); err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "{}", `{"messages": 0, "seconds": 2}`, `{"jobs": [{"error": 5}]}`, `{"jobs": [{"error": 0, "read": {"iops": 7.5}}]}`} {
		if _, err := readOurs([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
		if _, err := readFio([]byte(bad)); err == nil {
			t.Errorf("%q was taken from fio", bad)
		}
	}
}

// TestSameWork: both command lines ask for the same work.
func TestSameWork(t *testing.T) {
	fio := strings.Join(fioArgs("fio", "/f", 65536, 32, time.Second), " ")
	ours := strings.Join(clientArgs("p", "/n", "card", "host:1", 65536, 32, time.Second), " ")
	for _, want := range []string{"--bs=65536", "--iodepth=32", "--direct=1", "--rw=randread", "--runtime=1000ms"} {
		if !strings.Contains(fio, want) {
			t.Errorf("no %s in %s", want, fio)
		}
	}
	for _, want := range []string{"-spin", "-size 65536", "-depth 32", "-for 1s", "-device roce:card"} {
		if !strings.Contains(ours, want) {
			t.Errorf("no %s in %s", want, ours)
		}
	}
}

func TestCompare(t *testing.T) {
	c := newContest(4096, 32, "fio", rateBar, time.Second, nil, nil)
	c.Samples = [][]sample{{{1000, 1, 2, 3}, {2000, 4, 5, 6}}}
	all := c.Comparisons()
	if len(all) != 4 || all[0].Bar != rateBar || all[0].Better != bench.More || all[0].Pairs[0] != (bench.Pair{Ours: 4.096, Theirs: 8.192}) {
		t.Errorf("%+v", all)
	}
	if p := all[3]; p.Metric != "99.9%" || p.Better != bench.Less || p.Bar != 0 || p.Pairs[0] != (bench.Pair{Ours: 3, Theirs: 6}) {
		t.Errorf("%+v", p)
	}
}
