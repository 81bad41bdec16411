package xdp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/ruledcard"
)

// tuplesOf returns the tuples of an expression.
func tuplesOf(t *testing.T, text string) []filter.Tuple {
	t.Helper()
	e, err := filter.Parse(text)
	testenv.Must(t, err)
	all, err := e.Tuples()
	testenv.Must(t, err)
	return all
}

func noRecords(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("records are left: %v", left)
	}
}

// TestSteerRefused: for a card without rules the error names the card and the remedy, and nothing
// is left behind.
func TestSteerRefused(t *testing.T) {
	pair, dir := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true}), t.TempDir()
	testenv.Leaks(t)
	pair.B.Do(t, func() {
		s, err := Steer(pair.B.Ifname, tuplesOf(t, "udp dst port 5000"), []uint32{0}, dir)
		if s != nil || !errors.Is(err, ErrNoSteering) || !strings.Contains(err.Error(), pair.B.Ifname) || !strings.Contains(err.Error(), "remove steer") {
			t.Errorf("%v, %v: want the card to be refused, with a remedy", s, err)
		}
		if _, err := SteersPackets(pair.B.Ifname); !errors.Is(err, ErrNoSteering) {
			t.Errorf("%v: want it known that the card takes no rules", err)
		}
		if _, err := Steer("nowhere0", tuplesOf(t, "udp"), []uint32{0}, dir); !errors.Is(err, ErrInterfaceGone) {
			t.Errorf("an interface that is not there: %v", err)
		}
	})
	noRecords(t, dir)
}

// steerRole says what a process started by steered does.
type steerRole struct {
	Iface, Filter, Dir string
	Queues             []uint32
}

const steerRoleIs = "UNIFIEDD_STEER_ROLE"

// TestSteerRole is not a test: it is the process that steered starts.
func TestSteerRole(t *testing.T) {
	text := os.Getenv(steerRoleIs)
	if text == "" {
		return // started as a test, not by steered
	}
	var r steerRole
	testenv.Must(t, json.Unmarshal([]byte(text), &r))
	if r.Filter == "" {
		fmt.Println("=", SweepSteering(r.Dir))
		return
	}
	s, err := Steer(r.Iface, tuplesOf(t, r.Filter), r.Queues, r.Dir)
	fmt.Println("=", err)
	if err != nil {
		return
	}
	fmt.Println("=", strings.Join(s.Rules(), "; "))
	io.Copy(io.Discard, os.Stdin)
	fmt.Println("=", errors.Join(s.Close(), s.Close()))
}

// steered is a process with rules in a card.
type steered struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func startSteered(t *testing.T, n *testenv.End, card *ruledcard.Card, r steerRole) *steered {
	t.Helper()
	role, err := json.Marshal(r)
	testenv.Must(t, err)
	s := &steered{Cmd: exec.Command(os.Args[0], "-test.run=^TestSteerRole$")}
	s.Env = append(os.Environ(), steerRoleIs+"="+string(role))
	s.Stderr = os.Stderr
	in, err1 := s.StdinPipe()
	out, err2 := s.StdoutPipe()
	testenv.Must(t, errors.Join(err1, err2))
	s.in, s.out = in, bufio.NewScanner(out)
	n.Do(t, func() { card.Start(t, s.Cmd) })
	return s
}

// says returns the next line that the process prints.
func (s *steered) says() string {
	for s.out.Scan() {
		if text, ok := strings.CutPrefix(s.out.Text(), "= "); ok {
			return text
		}
	}
	return "nothing more"
}

// ends makes the process remove its rules and end.
func (s *steered) ends(t *testing.T) {
	t.Helper()
	s.in.Close()
	if end := s.says(); end != "<nil>" {
		t.Errorf("the end: %s", end)
	}
	_ = s.Wait()
}

// ethtoolOn returns what ethtool(8) prints on a machine with the card.
func ethtoolOn(t *testing.T, n *testenv.End, card *ruledcard.Card, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(testenv.Tool(t, "ethtool"), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	n.Do(t, func() { card.Start(t, cmd) })
	if err := cmd.Wait(); err != nil {
		t.Fatalf("ethtool %v: %v: %s", args, err, &out)
	}
	return out.String()
}

// TestSteerRules: the rule for an expression equals, byte for byte, the rule that ethtool inserts
// for the same words.
func TestSteerRules(t *testing.T) {
	testenv.Root(t)
	pair, dir := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true}), t.TempDir()
	card := ruledcard.New(16)
	for text, words := range map[string]string{
		"ip and udp dst port 5000":                           "flow-type udp4 dst-port 5000",
		"ip and tcp and src host 10.1.2.3 and dst port 80":   "flow-type tcp4 src-ip 10.1.2.3 dst-port 80",
		"ip and sctp src port 9":                             "flow-type sctp4 src-port 9",
		"ip and udp and dst net 10.1.0.0/16":                 "flow-type udp4 dst-ip 10.1.0.0 m 0.0.255.255",
		"udp and dst host 2001:db8::1 and dst port 53":       "flow-type udp6 dst-ip 2001:db8::1 dst-port 53",
		"dst host 10.1.2.3":                                  "flow-type ip4 dst-ip 10.1.2.3",
		"ip proto 47":                                        "flow-type ip4 l4proto 47",
		"ip6 proto 47":                                       "flow-type ip6 l4proto 47",
		"vlan 7 and ip and udp dst port 5000":                "flow-type udp4 dst-port 5000 vlan 7 m 0xf000",
		"ether dst 02:00:00:00:00:01 and ip and udp":         "flow-type udp4 dst-mac 02:00:00:00:00:01",
		"ether src 02:00:00:00:00:01 and ether proto 0x88b5": "flow-type ether src 02:00:00:00:00:01 proto 0x88b5",
		"ether dst 02:00:00:00:00:01":                        "flow-type ether dst 02:00:00:00:00:01",
		"arp":                                                "flow-type ether proto 0x0806",
	} {
		ethtoolOn(t, &pair.B, card, append([]string{"-N", pair.B.Ifname}, strings.Fields(words+" action 3 loc 0")...)...)
		s := startSteered(t, &pair.B, card, steerRole{pair.B.Ifname, text, dir, []uint32{3}})
		if err, rules := s.says(), s.says(); err != "<nil>" || !strings.HasSuffix(rules, "to queue 3") {
			t.Errorf("%s: %s, %s", text, err, rules)
		}
		if all := card.Rules(); len(all) != 2 || all[0].Anywhere() != all[1].Anywhere() {
			t.Errorf("%s: the rules are\n%x", text, all)
		}
		s.ends(t)
		ethtoolOn(t, &pair.B, card, "-N", pair.B.Ifname, "delete", "0")
		card.Count(t, 0)
	}
	noRecords(t, dir)
}

// TestSteerListed: ethtool lists the requested rules, with the queues in turn, beside rules of
// other processes, which stay.
func TestSteerListed(t *testing.T) {
	testenv.Root(t)
	pair, dir := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true}), t.TempDir()
	for _, chooses := range []bool{false, true} {
		card := ruledcard.New(16)
		ethtoolOn(t, &pair.B, card, "-N", pair.B.Ifname, "flow-type", "tcp4", "dst-port", "22", "action", "0", "loc", "15")
		card.Chooses = chooses
		s := startSteered(t, &pair.B, card, steerRole{pair.B.Ifname, "ip and udp port 5000", dir, []uint32{1, 2}})
		if err, rules := s.says(), s.says(); err != "<nil>" || rules != "ip udp src port 5000 to queue 1; ip udp dst port 5000 to queue 2" {
			t.Fatalf("%s, %s", err, rules)
		}
		list := ethtoolOn(t, &pair.B, card, "-n", pair.B.Ifname)
		for _, want := range []string{"Total 3 rules", "Src port: 5000", "Dest port: 5000", "Direct to queue 1", "Direct to queue 2", "Dest port: 22"} {
			if !strings.Contains(list, want) {
				t.Errorf("chooses %v: ethtool does not list %q:\n%s", chooses, want, list)
			}
		}
		s.ends(t)
		if list := ethtoolOn(t, &pair.B, card, "-n", pair.B.Ifname); !strings.Contains(list, "Total 1 rules") || !strings.Contains(list, "Dest port: 22") {
			t.Errorf("chooses %v: after the end ethtool lists\n%s", chooses, list)
		}
	}
	noRecords(t, dir)
}

// TestSteerKilled: the rules of a killed process are removed by the next Steer and by
// SweepSteering. A rule that another process inserted in the place of one of them stays.
func TestSteerKilled(t *testing.T) {
	testenv.Root(t)
	pair, dir := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true}), t.TempDir()
	card := ruledcard.New(8)
	alive := startSteered(t, &pair.B, card, steerRole{pair.B.Ifname, "arp", dir, []uint32{1}})
	if err := alive.says(); err != "<nil>" {
		t.Fatal(err)
	}
	for _, next := range []string{"", "ip and tcp"} {
		s := startSteered(t, &pair.B, card, steerRole{pair.B.Ifname, "udp dst port 5000", dir, []uint32{1}})
		if err := s.says(); err != "<nil>" {
			t.Fatal(err)
		}
		s.says()
		_ = s.Process.Signal(unix.SIGKILL)
		_ = s.Wait()
		card.Count(t, 3)
		// Another process replaces one of the rules.
		ethtoolOn(t, &pair.B, card, "-N", pair.B.Ifname, "flow-type", "tcp4", "dst-port", "22", "action", "0", "loc", "6")
		n := startSteered(t, &pair.B, card, steerRole{pair.B.Ifname, next, dir, []uint32{2}})
		if err := n.says(); err != "<nil>" {
			t.Fatal(err)
		}
		want := 2 // one of the living process, and one of another program
		if next != "" {
			n.says()
			want++
		}
		card.Count(t, want)
		if i := slices.IndexFunc(card.Rules(), func(r ruledcard.Rule) bool { return r.FlowType() == flowTCP4 && r.Queue() == 0 }); i < 0 {
			t.Error("the rule of somebody else is gone")
		}
		if next != "" {
			n.ends(t)
		}
		ethtoolOn(t, &pair.B, card, "-N", pair.B.Ifname, "delete", "6")
	}
	alive.says()
	alive.ends(t)
	card.Count(t, 0)
	noRecords(t, dir)
}

// TestSteerAllOrNone: if the card refuses one rule, none stays, and the error names the refused one.
func TestSteerAllOrNone(t *testing.T) {
	testenv.Root(t)
	pair, dir := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true}), t.TempDir()
	for want, set := range map[string]func(*ruledcard.Card){
		"room for 1 rules":            func(c *ruledcard.Card) { c.Room = 1 },
		"no rules that compare these": refuseUDP6(unix.EINVAL),
		"somebody else has such":      refuseUDP6(unix.EEXIST),
		"has no room for it":          refuseUDP6(unix.ENOSPC),
		"remove steer":                refuseUDP6(unix.EOPNOTSUPP),
		"CAP_NET_ADMIN":               refuseUDP6(unix.EPERM),
	} {
		card := ruledcard.New(8)
		set(card)
		s := startSteered(t, &pair.B, card, steerRole{pair.B.Ifname, "udp dst port 5000", dir, []uint32{1}})
		err := s.says()
		if !strings.Contains(err, want) || !strings.Contains(err, pair.B.Ifname) {
			t.Errorf("%q: want it to say %q", err, want)
		}
		if card.Refuse != nil && !strings.Contains(err, strconv.Quote("ip6 udp dst port 5000")) {
			t.Errorf("%q does not say which rule", err)
		}
		card.Count(t, 0)
	}
	noRecords(t, dir)
}

func refuseUDP6(errno unix.Errno) func(*ruledcard.Card) {
	return func(c *ruledcard.Card) {
		c.Refuse = func(r ruledcard.Rule) unix.Errno {
			if r.FlowType() == flowUDP6 {
				return errno
			}
			return 0
		}
	}
}
