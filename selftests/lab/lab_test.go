package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/unifiedd/unifiedd/selftests/lab/vm"
)

// TestJudge: a failed command and a failed kernel have different exit statuses.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		result vm.Result
		boot   []string
		want   int
	}{
		{vm.Result{}, nil, 0},
		{vm.Result{Code: 7}, nil, exitOurs},
		{vm.Result{Code: 137, TimedOut: true}, nil, exitOurs},
		{vm.Result{Code: 7, Complaints: []string{"WARNING: x"}}, nil, exitKernel},
		{vm.Result{}, []string{"WARNING: x"}, exitKernel},
	} {
		if got := exitCode(judge("it", c.result, c.boot)); got != c.want {
			t.Errorf("%+v after %q ends with %d, not %d", c.result, c.boot, got, c.want)
		}
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{vm.ErrStart, exitStart}, {vm.ErrSilent, exitStart}, {vm.ErrKernel, exitKernel}, {vm.ErrHung, exitKernel}, {vm.ErrLost, exitKernel},
		{errors.New("no network"), exitStart}, {errSignal, exitSignal}, {fmt.Errorf("%w: x", errUsage), exitUsage},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v ends with %d, not %d", c.err, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-kernel", "6.12", "-cmd", "true", "./xdp"})
	if err != nil || o.line.Name != "6.12" || o.cmd != "true" || !reflect.DeepEqual(o.packages, []string{"./xdp"}) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parse([]string{"-append", "idle=poll"}); err != nil || o.append != "idle=poll" {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"-kernel", "5"}, {"-nodes", "3"}, {"-nodes", "0"}, {"-cmd2", "x"}, {"-record", "x"}, {"-limit", "1s"}} {
		if _, err := parse(args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestFindTests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a_lab_test.go": "package a\n\nfunc TestOne(t *testing.T) {}\n\nfunc TestTwo(tt *testing.T) {\n}\n\nfunc helper(t *testing.T) {}\n\nfunc TestMain(m *testing.M) {}\n",
		"b_test.go":     "package a\n\nfunc TestElsewhere(t *testing.T) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := suite{Dir: dir, TestGoFiles: []string{"a_lab_test.go", "b_test.go"}}
	if err := s.findTests(); err != nil || s.pattern() != "^(TestOne|TestTwo)$" {
		t.Errorf("%q, %v", s.pattern(), err)
	}
	s.keep(regexp.MustCompile("Two"), "x/y")
	if s.pattern() != "^(TestTwo)$/x/y" {
		t.Errorf("%q", s.pattern())
	}
}

// TestFindSuites: findSuites finds the existing tests for cards.
func TestFindSuites(t *testing.T) {
	got, err := findSuites(t.Context(), []string{"../../xdp", "../../internal/ring"})
	if err != nil || len(got) != 1 || shortPath(got[0].ImportPath) != "xdp" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestEvents: the report writes the results of the guest itself as events of go test -json.
func TestEvents(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out, events: true, line: "7"}
	r.begin()
	r.test("Boot", nil)
	r.test("KernelLog/xdp", errors.New("it complained"))
	r.end()
	var got []string
	for dec := json.NewDecoder(&out); ; {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(e.Package+" "+e.Action+" "+e.Test+" "+e.Output))
	}
	want := []string{
		"lab/7 start", "lab/7 run Boot", "lab/7 pass Boot", "lab/7 run KernelLog/xdp",
		"lab/7 output KernelLog/xdp it complained", "lab/7 fail KernelLog/xdp", "lab/7 fail",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestPrefixed(t *testing.T) {
	var out bytes.Buffer
	p := &prefixed{prefix: "1| ", to: &out, mu: new(sync.Mutex)}
	for _, part := range []string{"a", "b\nc\n", "", "\nlast"} {
		if _, err := io.WriteString(p, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.flush(), p.flush()); err != nil {
		t.Fatal(err)
	}
	if out.String() != "1| ab\n1| c\n1| \n1| last\n" {
		t.Errorf("%q", out.String())
	}
}
