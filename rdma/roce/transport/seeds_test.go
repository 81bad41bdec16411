package transport

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// check checks a property with rapid's random input. If UNIFIEDD_SECONDS is set, it tries one seed
// after the other for that time, from UNIFIEDD_SEED on. rapid reports the seed that fails; setting
// UNIFIEDD_SEED to it repeats the failure.
func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	seconds := setting.Number(t, "UNIFIEDD_SECONDS", 0)
	if seconds == 0 {
		rapid.Check(t, property)
		return
	}
	known = figures{}
	set(t, "rapid.checks", 200)
	seed := setting.Seed(t)
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); seed++ {
		set(t, "rapid.seed", seed)
		rapid.Check(t, property)
	}
	t.Log(&known)
}

// set sets a flag of rapid for the duration of the test.
func set(t *testing.T, name string, value uint64) {
	t.Helper()
	was := flag.Lookup(name).Value.String()
	must(t, flag.Set(name, fmt.Sprint(value)))
	t.Cleanup(func() { must(t, flag.Set(name, was)) })
}
