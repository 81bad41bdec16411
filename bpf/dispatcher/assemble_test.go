package dispatcher

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// mustLoad loads a dispatcher of n functions. The next function runs if the bit of a function's result is set
// in actions.
func mustLoad(t *testing.T, n int, actions uint32, changes bool) *ebpf.Program {
	t.Helper()
	testenv.Root(t)
	f := newFormat(slices.Repeat([]*member{{Settings: ordinary}}, n))
	for i := range n {
		f.Actions[i] = actions
	}
	p, err := load(f, changes)
	testenv.Must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// TestAssembled: the kernel accepts dispatchers of all lengths, and each has a typed function for each
// program. A function that no program replaces returns 31, after which the next function runs. After the last
// function the packet passes.
func TestAssembled(t *testing.T) {
	for n := 1; n <= Most; n++ {
		for _, changes := range []bool{false, true} {
			p := mustLoad(t, n, 1<<proceed, changes)
			h, err := p.Handle()
			testenv.Must(t, err)
			types, err := h.Spec(nil)
			testenv.Must(t, errors.Join(err, h.Close()))
			for i := range Most {
				var f *btf.Func
				if err := types.TypeByName(functionName(i), &f); (err == nil) != (i < n) {
					t.Errorf("of %d functions, %s: %v", n, functionName(i), err)
				}
			}
			if got := run(t, p); got != 2 {
				t.Errorf("%d functions, changes %v: %d, want XDP_PASS", n, changes, got)
			}
		}
		if got := run(t, mustLoad(t, n, 1<<2, false)); got != proceed {
			t.Errorf("%d functions of which the first decides: %d, want what it returned", n, got)
		}
	}
}

func run(t *testing.T, p *ebpf.Program) uint32 {
	t.Helper()
	got, _, err := p.Test(make([]byte, 64))
	testenv.Must(t, err)
	return got
}

// TestStatus: libxdp's tools read the dispatcher as one of theirs.
func TestStatus(t *testing.T) {
	b := newBench(t)
	b.forge(b.plain("first"), b.plain("second"))
	var got []string
	for _, one := range b.Status(t) {
		got = append(got, one.Name+" "+strconv.Itoa(one.Priority))
	}
	if want := []string{"first 50", "second 50"}; !slices.Equal(got, want) {
		t.Errorf("xdp-loader lists %v, want %v", got, want)
	}
}

// TestReplace: replace succeeds only if the old dispatcher is still on the interface.
func TestReplace(t *testing.T) {
	b := newBench(t)
	b.forge(b.plain("other"))
	i := b.mustFind()
	f, err := openFiles()
	testenv.Must(t, err)
	defer f.close()
	old, err := i.read(f)
	testenv.Must(t, err)
	defer old.close()
	first, second := b.on(), mustLoad(t, 1, 1<<proceed, true)
	testenv.Must(t, i.replace(old, second))
	if b.on() == first || !Is(b.on()) {
		t.Errorf("program %d is on the interface, %d was", b.on(), first)
	}
	if err := i.replace(old, nil); !errors.Is(err, errChanged) {
		t.Errorf("one that is not there any more: %v", err)
	}
}

// TestReplaceRefused: the error has the driver's own words.
func TestReplaceRefused(t *testing.T) {
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 9000})
	b := &bench{t, testenv.NewLibxdp(t, &pair.B)}
	b.forge(b.plain("other")) // which takes packets of several buffers
	i := b.mustFind()
	f, err := openFiles()
	testenv.Must(t, err)
	defer f.close()
	old, err := i.read(f)
	testenv.Must(t, err)
	defer old.close()
	one := newFormat([]*member{{Settings: Settings{Priority: 1}}})
	p, err := load(one, false)
	testenv.Must(t, err)
	defer p.Close()
	if err := i.replace(old, p); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "exchange the dispatcher") {
		t.Errorf("%v", err)
	}
}
