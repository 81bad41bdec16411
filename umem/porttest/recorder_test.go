package porttest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/umem/porttest"
)

// recorder is a test that records its failure instead of failing.
type recorder struct {
	testing.TB
	said     []string
	failed   bool
	cleanups []func()
}

func (r *recorder) Helper()                      {}
func (r *recorder) Log(args ...any)              { r.said = append(r.said, fmt.Sprint(args...)) }
func (r *recorder) Logf(f string, args ...any)   { r.said = append(r.said, fmt.Sprintf(f, args...)) }
func (r *recorder) Fail()                        { r.failed = true }
func (r *recorder) Failed() bool                 { return r.failed }
func (r *recorder) FailNow()                     { r.Fail(); runtime.Goexit() }
func (r *recorder) Error(args ...any)            { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(f string, args ...any) { r.Logf(f, args...); r.Fail() }
func (r *recorder) Fatal(args ...any)            { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(f string, args ...any) { r.Logf(f, args...); r.FailNow() }
func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) has(text string) bool         { return strings.Contains(r.String(), text) }
func (r *recorder) String() string               { return strings.Join(r.said, "\n") }

// outcome runs one case of the suite on its own thread and returns what it reported, including panics.
func outcome(t *testing.T, name string, open porttest.Opener) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan bool)
	go func() {
		defer close(done)
		defer r.finish()
		for _, c := range porttest.Cases() {
			if c.Name == name {
				c.Check(r, open)
				return
			}
		}
		panic("no case " + name)
	}()
	<-done
	return r
}

// finish records a panic and runs the cleanups, as package testing does.
func (r *recorder) finish() {
	if p := recover(); p != nil {
		r.Error("panic: ", p)
	}
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}
