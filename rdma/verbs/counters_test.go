package verbs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// copied is a copy of the counters of a Soft-RoCE device on Linux 7 after ibv_rc_pingpong sent 50
// messages of 4 packets each way: with the ACKs 500 packets.
const copied = "testdata/class"

func TestReadCounters(t *testing.T) {
	all, err := readCounters(filepath.Join(copied, "rxe0/ports/1/hw_counters"), true)
	if err != nil || len(all) != 17 {
		t.Fatalf("%d counters: %v, %v", len(all), all, err)
	}
	for _, want := range []Counter{{"sent_pkts", 500, true}, {"rcvd_pkts", 500, true}, {"rdma_recvs", 100, true}, {"out_of_seq_request", 0, true}} {
		if !slices.Contains(all, want) {
			t.Errorf("no %+v among %+v", want, all)
		}
	}
	names := func(a, b Counter) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}
	if !slices.IsSortedFunc(all, names) {
		t.Errorf("not sorted: %+v", all)
	}
}

// TestReadOddCounters: ReadCounters omits files without a number and the lifespan. A missing
// directory has no counters.
func TestReadOddCounters(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good": "18446744073709551615\n", "lifespan": "10\n", "none": "N/A (no PMA)\n", "negative": "-1\n", "much": "18446744073709551616\n", "empty": "",
	} {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	all, err := readCounters(dir, false)
	if want := []Counter{{"good", 1<<64 - 1, false}}; err != nil || !slices.Equal(all, want) {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := readCounters(filepath.Join(dir, "nowhere"), false); err != nil || all != nil {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestPortsOf(t *testing.T) {
	for iface, want := range map[string][]PortID{"igb0": {{"rxe0", 1}}, "igb1": nil, "": nil} {
		if got, err := portsOf(copied, iface); err != nil || !slices.Equal(got, want) {
			t.Errorf("of %q: %v, %v", iface, got, err)
		}
	}
	if got, err := portsOf("testdata/nowhere", "igb0"); err != nil || got != nil {
		t.Errorf("without any device: %v, %v", got, err)
	}
}
