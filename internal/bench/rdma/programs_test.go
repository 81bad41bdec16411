package rdma

import (
	"strings"
	"testing"
)

var place = Place{Card: "eth1", Device: "rxe0", Address: "10.0.0.1", GID: 1, MTU: 1024}

func TestRead(t *testing.T) {
	const latency = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 2       1000          1.50           9.25         2.75     	       3.00        	0.50		7.00   		9.00   
`
	if v, err := read(latency, Work{Op: "send", Size: 2, Count: 1000}); v != 2.75 || err != nil {
		t.Errorf("%v, %v", v, err)
	}
	const bandwidth = ` #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 4096       500              0.00               123.45		   0.031603
`
	w := Work{Op: "write", Size: 4096, Count: 500, Bandwidth: true}
	if v, err := read(bandwidth, w); v != 123.45 || err != nil {
		t.Errorf("%v, %v", v, err)
	}
	for _, bad := range []string{"", "4096", " 4096 499 1 2 3\n", " 4096 500 1 x 3\n", " 4096 500 1 0 3\n", " 8192 500 1 2 3\n"} {
		if v, err := read(bad, w); err == nil {
			t.Errorf("%q is %v", bad, v)
		}
	}
}

// TestSameWork: both command lines ask for the same work.
func TestSameWork(t *testing.T) {
	for _, c := range []struct {
		work         Work
		ours, theirs string
	}{
		{Work{Op: "send", Size: 2, Count: 10}, "p -mtu 1024 -op send -n 10 -size 2 -test latency eth1 rxe0 - 10.0.0.1",
			"ib_send_lat -d rxe0 -x 1 -m 1024 -n 10 -s 2 10.0.0.1"},
		{Work{Op: "fetch-add", Size: 8, Count: 10}, "p -mtu 1024 -op fetch-add -n 10 -test latency eth1 rxe0 - 10.0.0.1",
			"ib_atomic_lat -d rxe0 -x 1 -m 1024 -n 10 10.0.0.1"},
		{Work{Op: "read", Size: 4096, Count: 500, Bandwidth: true}, "p -mtu 1024 -op read -n 500 -size 4096 -test bandwidth -depth 128 eth1 rxe0 - 10.0.0.1",
			"ib_read_bw -d rxe0 -x 1 -m 1024 -n 500 -s 4096 -t 128 10.0.0.1"},
	} {
		if got := strings.Join(Ours("p").client(place, c.work), " "); got != c.ours {
			t.Errorf("ours %q, want %q", got, c.ours)
		}
		if got := strings.Join(Perftest().client(place, c.work), " "); got != c.theirs {
			t.Errorf("theirs %q, want %q", got, c.theirs)
		}
	}
}

func TestWorks(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range Works(1000, 1<<20) {
		if seen[w.Name()] || w.Count < depth {
			t.Errorf("%+v", w)
		}
		seen[w.Name()] = true
	}
	if len(seen) != 10 || !seen["latency, read of 2 B"] || !seen["bandwidth, send of 64 KiB"] {
		t.Errorf("%v", seen)
	}
}
