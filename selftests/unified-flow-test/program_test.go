package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// TestBetweenNamespaces: two sinks of one process receive every byte that two appenders of another
// send.
func TestBetweenNamespaces(t *testing.T) {
	testenv.Root(t)
	pair := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	testenv.HugePages(t, 160<<20)
	const device = "-device roce:%s -receive-ring 512 -memory 33554432"
	to := programtest.Start(t, &pair.B, "receive -json "+device+" -listen %s:7481 -count 3000 + receive -json -seed 2 -listen %[2]s:7482 -count 2000 -depth 8 -method write", pair.B.Ifname, pair.B.IP)
	from := programtest.Start(t, &pair.A, "append -json "+device+" -to %s:7481 -size 1000 -count 3000 + append -json -seed 2 -to %[2]s:7482 -size 3000 -count 2000 -method write", pair.A.Ifname, pair.B.IP)
	var sent, came [2]result
	from.Must(&sent[0], &sent[1])
	to.Must(&came[0], &came[1])
	for i, want := range []result{{Messages: 3000, Bytes: 3_000_000, Method: "send"}, {Messages: 2000, Bytes: 6_000_000, Method: "write"}} {
		if sent[i].Messages != want.Messages || came[i].Messages != want.Messages || came[i].Bytes != want.Bytes || came[i].Sessions != 1 {
			t.Errorf("sent %+v, came %+v", sent[i], came[i])
		}
		if sent[i].Latency == nil || sent[i].Latency.Count != int64(want.Messages) || sent[i].Durability != "received" || sent[i].Method != want.Method {
			t.Errorf("the appender says %+v", sent[i])
		}
		if longest := time.Duration(sent[i].Seconds * float64(time.Second)); sent[i].Gap <= 0 || sent[i].Gap > longest {
			t.Errorf("the longest gap is %v, of %v", sent[i].Gap, longest)
		}
	}
}

// TestMake: read accepts the blocks of a file that make wrote.
func TestMake(t *testing.T) {
	name := filepath.Join(t.TempDir(), "blocks")
	var out bytes.Buffer
	if status := run(context.Background(), []string{"make", "-file", name, "-size", "16384"}, &out, &out); status != 0 {
		t.Fatalf("status %d: %s", status, &out)
	}
	if info, err := os.Stat(name); err != nil || info.Size() != 16384 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestMistakes: each mistake in a command line ends the program with status 2 and an error that
// names it.
func TestMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"":                                      "name a command",
		"dance":                                 `no command "dance"`,
		"append -to a:1":                        "append needs -device",
		"append -device roce:x":                 "append needs -to",
		"append -nonsense":                      "-help lists the options",
		"receive -device d -listen :1 -depth 0": "-depth 0: it must be from 1 to",
		"receive -device d -listen :1 + append -device e -to a:1": "share a device, which is d",
		"receive -device d -listen :1 +":                          "name a command",
		"receive -device d -listen :1 -method any":                "want send or write",
		"append -device d -to a:1 -method both":                   "want send, write or any",
		"send -to a:1 -size 7":                                    "-size 7: it must be from 8 to",
		"append -device d -to a:1 -size 1048577":                  "to 1048576",
		"load -device d -to a:1 -clients 0":                       "-clients 0: it must be from 1 to",
		"load -device d -to a:1 -size 7":                          "-size 7: it must be from 8 to",
		"make -file /x y":                                         `"y" is left over`,
		"append -device d -peer a/b":                              "-peer and -etcd go together",
		"append -device d -to a:1 -etcd http://e:2379":            "-peer and -etcd go together",
		"append -device d -to a:1 -peer a/b -etcd http://e:2379":  "-peer says where the flow is",
		"read -device d -etcd http://e:2379":                      "read needs -from",
		"get -device d -from a:1":                                 "get needs -reads",
		"get -device d -peer a/b":                                 "-peer and -etcd go together",
		"get -device d -peer a/b -etcd http://e:2379 -reads b":    "leave out -reads",
	} {
		var out, errs bytes.Buffer
		if status := run(context.Background(), strings.Fields(line), &out, &errs); status != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: status %d, %q, not %q", line, status, &errs, want)
		}
	}
}

// TestDatagram: checkDatagram detects a change of any byte.
func TestDatagram(t *testing.T) {
	b := make([]byte, 100)
	putDatagram(b, 3, 7)
	if n, err := checkDatagram(b, 3); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for i := range b {
		b[i] ^= 1
		if _, err := checkDatagram(b, 3); err == nil {
			t.Errorf("byte %d is changed, and nobody notices", i)
		}
		b[i] ^= 1
	}
	if _, err := checkDatagram(b[:7], 3); err == nil {
		t.Error("a datagram without a number is taken")
	}
}

// TestPathsOption: -paths has a device and an address for each path, and of a group the addresses of all members.
func TestPathsOption(t *testing.T) {
	for text, want := range map[string][]client.Path{
		"roce:b=10.1.0.1:7471":                      {{Device: "roce:b", Address: "10.1.0.1:7471"}},
		"roce:b=10.1.0.1:7471,roce:c=10.2.0.1:7471": {{Device: "roce:b", Address: "10.1.0.1:7471"}, {Device: "roce:c", Address: "10.2.0.1:7471"}},
		"roce:b=10.1.0.1:7471,10.1.0.2:7471,roce:c=[fd00::1]:1,[fd00::2]:1": {
			{Device: "roce:b", Address: "10.1.0.1:7471", Others: []string{"10.1.0.2:7471"}}, {Device: "roce:c", Address: "[fd00::1]:1", Others: []string{"[fd00::2]:1"}},
		},
	} {
		o := options{paths: text}
		if got := o.further(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}
