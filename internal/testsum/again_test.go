package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// ran returns the events of a package with one test.
func ran(pkg, test, action, said string) string {
	return strings.NewReplacer("PKG", pkg, "TEST", test, "ACTION", action, "SAID", said).Replace(`{"Action":"start","Package":"PKG"}
{"Action":"run","Package":"PKG","Test":"TEST"}
{"Action":"output","Package":"PKG","Test":"TEST","Output":"SAID\n"}
{"Action":"ACTION","Package":"PKG","Test":"TEST","Elapsed":1}
{"Action":"ACTION","Package":"PKG","Elapsed":1}
`)
}

// summarizeAgain is summarize with a second run of the failed tests. It also returns which tests
// ran again.
func summarizeAgain(t *testing.T, events string, run func(pkg, test string) ([]byte, error)) (out string, good bool, asked []string) {
	t.Helper()
	var b bytes.Buffer
	s := newSummary(&b)
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	s.again(func(pkg, test string) ([]byte, error) {
		asked = append(asked, pkg+"."+test)
		return run(pkg, test)
	})
	good = s.report(3, nil)
	return b.String(), good, asked
}

// passing is a second run in which everything passes. The test passes twice, and the short form skips it.
func passing(pkg, test string) ([]byte, error) {
	pass := ran(pkg, test, "pass", "fine")
	return []byte(pass + pass + ran(pkg, test, "skip", "short")), nil
}

func TestAgain(t *testing.T) {
	const sub = `{"Action":"run","Package":"a","Test":"TestX/sub"}
{"Action":"fail","Package":"a","Test":"TestX/sub","Elapsed":1}
`
	events := ran("b", "TestY", "pass", "") + sub + ran("a", "TestX", "fail", "too late")
	out, good, asked := summarizeAgain(t, events, passing)
	if !good || len(asked) != 1 || asked[0] != "a.TestX" {
		t.Errorf("good %v, run again %q:\n%s", good, asked, out)
	}
	wantAll(t, out, "again, alone: a.TestX", "Passed when run again, alone, after they had failed:\n  a.TestX/sub", "  a.TestX\n", "    | too late")
	wantLast(t, out, "3 passed, 0 failed, 0 skipped")
}

func TestAgainInVain(t *testing.T) {
	for name, run := range map[string]func(pkg, test string) ([]byte, error){
		"fails": func(pkg, test string) ([]byte, error) { return []byte(ran(pkg, test, "fail", "again")), nil },
		"once":  func(pkg, test string) ([]byte, error) { return []byte(ran(pkg, test, "pass", "fine")), nil },
		"second": func(pkg, test string) ([]byte, error) {
			b, _ := passing(pkg, test)
			return append(b, ran(pkg, test, "fail", "no")...), nil
		},
		"skips":   func(pkg, test string) ([]byte, error) { return []byte(ran(pkg, test, "skip", "no card")), nil },
		"nothing": func(pkg, test string) ([]byte, error) { return nil, nil },
		"other":   func(pkg, test string) ([]byte, error) { return passing(pkg, test+"2") },
		"status":  func(pkg, test string) ([]byte, error) { b, _ := passing(pkg, test); return b, errors.New("status 1") },
	} {
		t.Run(name, func(t *testing.T) {
			out, good, asked := summarizeAgain(t, ran("a", "TestX", "fail", "why"), run)
			if good || len(asked) != 1 {
				t.Errorf("good %v, run again %q:\n%s", good, asked, out)
			}
			wantAll(t, out, "Failed:\n  a.TestX")
			wantLast(t, out, "0 passed, 1 failed, 0 skipped")
		})
	}
}

// TestNotAgain: failures that no second run can disprove do not run again.
func TestNotAgain(t *testing.T) {
	var many string
	for n := range maxAgain + 1 {
		many += ran("a", fmt.Sprintf("Test%d", n), "fail", "")
	}
	for name, events := range map[string]string{
		"race":        ran("a", "TestX", "fail", "WARNING: DATA RACE"),
		"panic":       ran("a", "TestX", "fail", "panic: ouch"),
		"many":        many,
		"benchmark":   ran("a", "BenchmarkX", "fail", "slow"),
		"never ended": "{\"Action\":\"run\",\"Package\":\"a\",\"Test\":\"TestX\"}\n",
		"no build":    "{\"Action\":\"start\",\"Package\":\"a\"}\n{\"Action\":\"fail\",\"Package\":\"a\"}\n",
		"with a test": ran("a", "TestX", "fail", "") + "{\"Action\":\"start\",\"Package\":\"b\"}\n{\"Action\":\"fail\",\"Package\":\"b\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			if out, good, asked := summarizeAgain(t, events, passing); good || len(asked) > 0 {
				t.Errorf("good %v, run again %q:\n%s", good, asked, out)
			}
		})
	}
}

// TestGuestAgain: a test of the lab guest itself that failed and then passed is listed as such. Other tests are not: go
// test may run them several times.
func TestGuestAgain(t *testing.T) {
	run := func(pkg string) string {
		return strings.ReplaceAll(`{"Action":"start","Package":"P"}
{"Action":"run","Package":"P","Test":"KernelLog/xdp"}
{"Action":"output","Package":"P","Test":"KernelLog/xdp","Output":"the guest's kernel died\n"}
{"Action":"fail","Package":"P","Test":"KernelLog/xdp"}
{"Action":"run","Package":"P","Test":"KernelLog/xdp"}
{"Action":"pass","Package":"P","Test":"KernelLog/xdp"}
{"Action":"pass","Package":"P"}
`, `"P"`, `"`+pkg+`"`)
	}
	out, ok := summarize(t, run("lab/7"), nil)
	if !ok {
		t.Error("the run has failed")
	}
	wantAll(t, out, "Passed when run again", "lab/7.KernelLog/xdp", "| the guest's kernel died")
	wantLast(t, out, "1 passed, 0 failed, 0 skipped")
	out, ok = summarize(t, run("a"), nil)
	if ok {
		t.Error("a failure of a package was forgiven")
	}
	wantLast(t, out, "1 passed, 1 failed, 0 skipped")
}
