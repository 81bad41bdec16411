package transport

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// check checks a property with what rapid draws. With UNIFIEDD_SECONDS it does so for as long, with one seed after the other from UNIFIEDD_SEED
// on; the one that fails is said by rapid, and UNIFIEDD_SEED with it begins there.
func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	seconds := fromEnvironment(t, "UNIFIEDD_SECONDS", 0)
	if seconds == 0 {
		rapid.Check(t, property)
		return
	}
	known = figures{}
	set(t, "rapid.checks", 200)
	seed := fromEnvironment(t, "UNIFIEDD_SEED", uint64(time.Now().UnixNano()))
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); seed++ {
		set(t, "rapid.seed", seed)
		rapid.Check(t, property)
	}
	t.Log(&known)
}

// set sets a flag of rapid's for the test.
func set(t *testing.T, name string, value uint64) {
	t.Helper()
	was := flag.Lookup(name).Value.String()
	must(t, flag.Set(name, fmt.Sprint(value)))
	t.Cleanup(func() { must(t, flag.Set(name, was)) })
}

func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	must(t, err)
	return n
}
