package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// program is the program, started at one end of a pair.
type program struct{ *programtest.Run }

// start starts the program and waits until it prints its mode, or ends.
func start(t *testing.T, e *testenv.End, args ...string) program {
	t.Helper()
	p := program{programtest.Launch(t, e, os.Args[0], append(args, e.Ifname)...)}
	testenv.Wait(t, time.Minute, "the program to begin", func() bool { return p.Over() || strings.Contains(p.Errs.String(), "\n") })
	return p
}

// must waits for the program, which must succeed, and reads the JSON it printed.
func (p program) must() (r result) {
	p.Must(&r)
	return r
}

// newPair makes a pair and the memory for programs at both ends.
func newPair(t *testing.T, o testenv.PairOptions) *testenv.Pair {
	t.Helper()
	o.NoAddresses = true
	testenv.Root(t)
	testenv.HugePages(t, 48<<20)
	return testenv.NewPair(t, o)
}
