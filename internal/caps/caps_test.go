package caps

import (
	"os"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

const example = `Name:	cat
Uid:	0	1	2	3
Gid:	100	100	100	100
CapInh:	0000000000000000
CapPrm:	000001fffeffffff
CapEff:	0000008000003000
CapBnd:	000001fffeffffff
CapAmb:	0000000000002000
NoNewPrivs:	1
Seccomp:	2
`

func TestParse(t *testing.T) {
	got, err := Parse(example)
	testenv.Must(t, err)
	want := Status{
		UID: ID{0, 1, 2, 3}, GID: ID{100, 100, 100, 100},
		Permitted: 0x1fffeffffff, Effective: BPF | NetRaw | NetAdmin, Bounding: 0x1fffeffffff,
		Ambient: NetRaw, NoNewPrivs: true, Seccomp: 2,
	}
	if got != want {
		t.Errorf("Parse:\n%+v\nwant\n%+v", got, want)
	}
}

func TestParseRefusesWhatIsMissing(t *testing.T) {
	for _, key := range []string{"Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		var rest strings.Builder
		for line := range strings.Lines(example) {
			if !strings.HasPrefix(line, key) {
				rest.WriteString(line)
			}
		}
		if _, err := Parse(rest.String()); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("without %s: %v, want an error which names it", key, err)
		}
	}
}

func TestString(t *testing.T) {
	for set, want := range map[Set]string{
		0:               "none",
		NetRaw | BPF:    "CAP_NET_RAW, CAP_BPF",
		1<<63 | IPCLock: "CAP_IPC_LOCK, CAP_63",
	} {
		if got := set.String(); got != want {
			t.Errorf("%#x is %q, want %q", uint64(set), got, want)
		}
	}
}

func TestSets(t *testing.T) {
	s := NetRaw | BPF | IPCLock
	if !s.Has(NetRaw|BPF) || s.Has(NetRaw|NetAdmin) {
		t.Error("Has is wrong")
	}
	if got := s.Minus(BPF | SysAdmin); got != NetRaw|IPCLock {
		t.Errorf("Minus leaves %v", got)
	}
}

func TestThreads(t *testing.T) {
	all, err := Threads()
	testenv.Must(t, err)
	self, err := Self()
	testenv.Must(t, err)
	if self.UID.Real != uint32(os.Getuid()) {
		t.Errorf("own user is %d, want %d", self.UID.Real, os.Getuid())
	}
	if len(all) < 2 || all[0] != self {
		t.Errorf("%d threads, the first %+v, want several and %+v", len(all), all[0], self)
	}
}
