package flows

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// filtered is the lab's configuration with a filter.
func (l *lab) filtered(filter string) string {
	return strings.Replace(l.captures(), "ring: 1024", "ring: 1024, filter: "+filter, 1)
}

// ports sends n packets to each of some ports, and returns them by port.
func (l *lab) ports(t *testing.T, n int, ports ...uint16) map[uint16][][]byte {
	t.Helper()
	sent, all := map[uint16][][]byte{}, [][]byte(nil)
	for i, port := range ports {
		sent[port] = testenv.Stream(&l.A, &l.B, port, uint64(i*n), n, 100)
		all = append(all, sent[port]...)
	}
	testenv.SendRaw(t, &l.A, all, testenv.SendOptions{Rate: 10000})
	return sent
}

// object copies the tests' object file, so that a test can change it.
func (l *lab) object(t *testing.T) (file string) {
	t.Helper()
	elf, err := os.ReadFile("../bpf/testdata/own.o")
	testenv.Must(t, err)
	file = filepath.Join(l.dir, "own.o")
	testenv.Must(t, os.WriteFile(file, elf, 0o600))
	return file
}

// TestOwnProgram: a program of the user decides on packets, and the status has the program's counters. A
// reload with a program that the verifier refuses changes nothing.
func TestOwnProgram(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	file := l.object(t)
	of := func(program string) string {
		return l.filtered(fmt.Sprintf("{object: %s, program: %s}", file, program))
	}
	f := l.start(t, of("by_port"), Options{}).Flows()[0]
	sent := l.ports(t, 50, 7000, 7001, 7002, 7003)
	s := await(t, f, "the packets", func(s status.Flow) bool { return s.Offered == 200 && s.Durable.Packets == 50 })
	if s.Dropped["filter_dropped"] != 50 || s.Passed["kernel_unclear"] != 50 || s.Passed["kernel_no_match"] != 50 || lost(s) != 50 {
		t.Errorf("%+v", s)
	}
	want := []status.FilterCount{{Name: "TAKEN", Value: 50}, {Name: "LEFT", Value: 50}, {Name: "DROPPED", Value: 50}, {Name: "STRANGE", Value: 50}}
	if diff := cmp.Diff(want, s.FilterCounts); diff != "" || s.Filter != "program by_port of "+file {
		t.Errorf("filter %q (-want +got):\n%s", s.Filter, diff)
	}
	r, err := l.reload(t, of("reads_behind"))
	if err == nil || r.Outcome != status.RolledBack || !strings.Contains(r.Error, "*(u8 *)(r1 +0)") || f.Status().Filter != s.Filter {
		t.Errorf("%v, %+v", err, r)
	}
	sent[7000] = append(sent[7000], l.ports(t, 10, 7000)[7000]...)
	await(t, f, "packets after that", func(s status.Flow) bool { return s.Durable.Packets == 60 && s.FilterCounts[0].Value == 60 })
	testenv.Must(t, f.Stop())
	balanced(t, f.Status(), 210)
	samePackets(t, "the capture", captures.Packets(t, l.files(t)...), sent[7000])
}

// TestRules: a reload replaces an object by rules, and the first rule that matches a packet decides.
func TestRules(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	file := l.object(t)
	own := l.filtered(fmt.Sprintf("{object: %s, program: one_buffer}", file))
	d := l.start(t, own, Options{})
	f := d.Flows()[0]
	if f.Status().MultiBuffer {
		t.Error("a program of section xdp is given packets of several buffers")
	}
	const rules = `[{name: left, match: udp port 5001, action: leave}, {name: dropped, match: udp port 5002, action: drop}, {name: taken, match: udp portrange 5000-5002}]`
	if p := l.reloaded(t, l.filtered(rules)).Plan; !slices.Equal(p.Filters, []string{"cap"}) {
		t.Errorf("%+v", p)
	}
	sent := l.ports(t, 30, 5000, 5001, 5002, 5003)
	s := await(t, f, "the packets", func(s status.Flow) bool { return s.Offered == 120 && s.Durable.Packets == 30 })
	want := []status.Rule{
		{Name: "left", Match: "udp src or dst port 5001", Action: "leave", Packets: 30, Bytes: 3000}, {Name: "dropped", Match: "udp src or dst port 5002", Action: "drop", Packets: 30, Bytes: 3000}, {Name: "taken", Match: "udp src or dst portrange 5000-5002", Action: "take", Packets: 30, Bytes: 3000},
	}
	if diff := cmp.Diff(want, s.Rules); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.Passed["kernel_no_match"] != 60 || s.Dropped["filter_dropped"] != 30 || len(s.FilterCounts) != 0 {
		t.Errorf("%+v", s)
	}
	testenv.Must(t, f.Stop())
	balanced(t, f.Status(), 120)
	samePackets(t, "the capture", captures.Packets(t, l.files(t)...), sent[5000])
}

// TestObjectChanges: a reload loads an object again if its file has other bytes under the same name.
func TestObjectChanges(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	file := l.object(t)
	text := l.filtered(fmt.Sprintf("{object: %s, program: by_port}", file))
	parse := func(running *config.Config) (*config.Config, error) {
		return config.Parse("test.yaml", []byte(text), config.Options{Running: running, CheckObject: func(file, program string) (string, error) {
			o, err := bpf.ReadObject(file, program)
			if err != nil {
				return "", err
			}
			return o.Digest(), nil
		}})
	}
	reload := func() (s status.Reload) {
		var err error
		l.B.Do(t, func() { s, err = l.daemon.Reload(parse) })
		testenv.Must(t, err)
		return s
	}
	f := l.start(t, text, Options{}).Flows()[0]
	reload() // the text was parsed without a look at the file
	if s := reload(); s.Outcome != status.Unchanged {
		t.Errorf("%+v", s)
	}
	elf, err := os.ReadFile(file)
	testenv.Must(t, err)
	testenv.Must(t, os.WriteFile(file, append(elf, 0), 0o600))
	if s := reload(); s.Outcome != status.Applied || !slices.Equal(s.Plan.Filters, []string{"cap"}) || f != l.daemon.Flows()[0] {
		t.Errorf("%+v", s)
	}
}

// TestSeatsOfInterface: a configuration allows as many flows on one interface as a program has room for.
func TestSeatsOfInterface(t *testing.T) {
	text := "region: {size: 256MiB, extents: 64}\nworkers: [{name: w}]\nflows:\n"
	for i := range bpf.Seats + 1 {
		_, err := config.Parse("seats.yaml", []byte(text), config.Options{})
		if i > 0 && err != nil {
			t.Errorf("%d flows: %v", i, err)
		}
		text += fmt.Sprintf("- {name: f%d, worker: w, from: {interface: eth1, filter: udp}, to: {file: /captures/f%[1]d}}\n", i)
	}
	if _, err := config.Parse("seats.yaml", []byte(text), config.Options{}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%d flows: %v", bpf.Seats+1, err)
	}
}
