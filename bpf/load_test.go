package bpf

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

func TestLoadRefusesBadQueues(t *testing.T) {
	for _, n := range []int{-1, 0, MaxQueues + 1} {
		if p, err := Load(Config{Queues: n}); err == nil {
			p.Close()
			t.Errorf("loaded a program for %d queues", n)
		}
	}
}

func TestLoadsInEveryConfiguration(t *testing.T) {
	packet := pad(ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("10.0.0.1", "10.0.0.2", 6, 0, 0, ports(1, 80))))
	for _, multi := range []bool{false, true} {
		for _, timestamps := range []bool{false, true} {
			p := mustLoad(t, Config{Queues: MaxQueues, MultiBuffer: multi, Timestamps: timestamps, MaxLen: 60})
			if got := run(t, p, packet[:60]); got != NoSocket {
				t.Errorf("multi-buffer %v, timestamps %v: %v, want %v", multi, timestamps, got, NoSocket)
			}
			if p.MetaRefused() {
				t.Errorf("metadata refused where no packet was redirected")
			}
		}
	}
}

func TestVerdictsMeanWhatTheySay(t *testing.T) {
	packet := ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("10.0.0.1", "10.0.0.2", 6, 0, 0, ports(1, 80)))
	long := append(packet[:len(packet):len(packet)], make([]byte, 100)...)
	p := mustLoad(t, Config{Filter: mustParse(t, "port 80"), MaxLen: uint32(len(packet))})
	other := ethernet(poolMAC[0], poolMAC[1], nil, 0x0806, append(arp("10.0.0.1", "10.0.0.2"), make([]byte, 200)...))
	for _, c := range []struct {
		packet []byte
		want   Verdict
	}{{packet, NoSocket}, {long, TooLong}, {other, NoMatch}, {packet, NoSocket}} {
		if got := run(t, p, c.packet); got != c.want {
			t.Errorf("%d bytes: %v, want %v", len(c.packet), got, c.want)
		}
	}
	c := mustCount(t, p)
	if want := uint64(2*len(packet) + len(long) + len(other)); c.Total() != (Counter{4, want}) {
		t.Errorf("all verdicts: %+v, want 4 packets of %d bytes", c.Total(), want)
	}
}

func TestVerdictNames(t *testing.T) {
	var names []string
	for v := range Verdicts + 1 {
		names = append(names, Verdict(v).String())
	}
	if got := strings.Join(names, " "); got != "redirected no_match too_long no_socket unclear dropped unknown" {
		t.Error(got)
	}
}

// hosts is a filter of n alternatives.
func hosts(n int, format func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = format(i)
	}
	return "host " + strings.Join(list, " or ")
}

func host4(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }
func host6(i int) string { return fmt.Sprintf("2001:db8::%x:%x", i>>16, i&0xffff) }

func TestLongListsLoad(t *testing.T) {
	const n = 20000
	start := time.Now()
	p := mustLoad(t, Config{Filter: mustParse(t, hosts(n, host4))})
	t.Logf("%d hosts loaded in %v", n, time.Since(start))
	for host, want := range map[string]bool{host4(0): true, host4(n - 1): true, host4(n): false} {
		packet := ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("192.0.2.1", host, 6, 0, 0, ports(1, 80)))
		if got := accepts(t, p, packet); got != want {
			t.Errorf("host %s: %v, want %v", host, got, want)
		}
	}
}

func TestVerifierRefusalIsExplained(t *testing.T) {
	testenv.Root(t)
	text := hosts(10000, host6)
	p, err := Load(Config{Queues: 1, Filter: mustParse(t, text)})
	if err == nil {
		p.Close()
		t.Fatal("the verifier accepted a filter of 10000 IPv6 hosts")
	}
	var refused *RefusedError
	if !errors.Is(err, ErrRefused) || !errors.As(err, &refused) {
		t.Fatalf("%v, want a *RefusedError", err)
	}
	t.Log(err)
	if len(refused.Lines) == 0 || !strings.Contains(err.Error(), "simplify the filter") || len(err.Error()) > 1000 {
		t.Errorf("not a helpful error: %v", err)
	}
}

func TestVerifierWordsAreShown(t *testing.T) {
	testenv.Root(t)
	expr := mustParse(t, "tcp")
	only := oneTable(Selection{Filter: expr})
	spec, err := Config{Queues: 1}.prepare(&only)
	testenv.Must(t, err)
	program := spec.Programs[onlyProgram]
	behind := asm.LoadMem(asm.R0, asm.R1, 1000, asm.Word)
	program.Instructions, err = splice(program.Instructions, filterSymbol,
		asm.Instructions{behind, asm.Return()})
	testenv.Must(t, err)
	collection, err := load(spec, &Selection{Filter: expr}, nil)
	if err == nil {
		collection.Close()
		t.Fatal("the verifier accepted a read behind the context")
	}
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Filter != "tcp" || !strings.Contains(err.Error(), "invalid bpf_context access") {
		t.Errorf("%v, want the verifier's words and the filter", err)
	}
	t.Log(err)
}

func TestTooLongJumpIsExplained(t *testing.T) {
	text := "(" + hosts(20000, host4) + ") and tcp"
	if _, err := Load(Config{Queues: 1, Filter: mustParse(t, text)}); !errors.Is(err, filter.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
}

func TestCloseGivesEverythingBack(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p, err := Load(Config{Queues: 4, Timestamps: true, Filter: mustParse(t, "tcp")})
	testenv.Must(t, err)
	testenv.Must(t, p.Replace(mustParse(t, "udp")))
	for range 2 {
		testenv.Must(t, p.Close())
	}
	if p.MetaRefused() {
		t.Error("metadata refused by a closed program")
	}
	_, counters := p.Counters()
	for name, err := range map[string]error{
		"Attach": p.Attach(1, Any), "Replace": p.Replace(nil), "SetSocket": p.SetSocketOf(0, 0, 0),
		"ClearSocket": p.ClearSocketOf(0, 0), "Counters": counters,
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s of a closed program: %v, want ErrClosed", name, err)
		}
	}
}

func TestReplaceKeepsTheOldFilterOnError(t *testing.T) {
	packet := pad(ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("10.0.0.1", "10.0.0.2", 6, 0, 0, ports(1, 80))))
	p := mustLoad(t, Config{Filter: mustParse(t, "tcp")})
	if !accepts(t, p, packet) {
		t.Fatal("tcp does not accept TCP")
	}
	if err := p.Replace(mustParse(t, hosts(10000, host6))); !errors.Is(err, ErrRefused) {
		t.Fatalf("%v, want ErrRefused", err)
	}
	if !accepts(t, p, packet) {
		t.Error("the old filter is gone")
	}
	testenv.Must(t, p.Replace(mustParse(t, "udp")))
	if accepts(t, p, packet) {
		t.Error("the new filter is not there")
	}
	testenv.Must(t, p.Replace(nil))
	if !accepts(t, p, packet) {
		t.Error("no filter does not accept everything")
	}
	if total := mustCount(t, p).Total().Packets; total != 4 {
		t.Errorf("%d packets counted over all filters, want 4", total)
	}
}

func TestSocketsAreChecked(t *testing.T) {
	p := mustLoad(t, Config{Queues: 2})
	if err := p.SetSocketOf(0, 2, 0); err == nil || !strings.Contains(err.Error(), "loaded for 2 queues") {
		t.Errorf("queue 2 of 2: %v", err)
	}
	if err := p.SetSocketOf(0, 0, 0); err == nil {
		t.Error("standard input was taken for an AF_XDP socket")
	}
	testenv.Checkf(t, p.ClearSocketOf(0, 1), "clear a queue without a socket")
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	p := mustLoad(t, Config{Timestamps: true})
	if n := testing.AllocsPerRun(1000, func() { p.MetaRefused() }); n != 0 {
		t.Errorf("MetaRefused allocates %v times", n)
	}
}

func BenchmarkMetaRefused(b *testing.B) {
	p := mustLoad(b, Config{Timestamps: true})
	for b.Loop() {
		p.MetaRefused()
	}
}
