package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"unifiedd": main, "stir": func() { testenv.StirHugePages(os.Stdin, 16) }})
}

// TestScripts: the command lines in testdata/script print and return what the scripts expect.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": exitStatus,
		},
	})
}

// exitStatus runs a program and compares its exit status: status N PROGRAM ARGS…
func exitStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := err.(interface{ ExitCode() int }); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// TestSample: the sample configuration of the config package is valid, with its filters compiled.
func TestSample(t *testing.T) {
	sample, err := os.ReadFile(filepath.Join("..", "..", "flows", "config", "testdata", "full.yaml"))
	testenv.Must(t, err)
	// The sample names a program of the user that does not exist here. The program of the tests
	// replaces it.
	own, err := filepath.Abs(filepath.Join("..", "..", "bpf", "testdata", "own.o"))
	testenv.Must(t, err)
	const theirs = "{object: /etc/unifiedd/mine.o, program: mine}"
	text := strings.Replace(string(sample), theirs, "{object: "+own+", program: by_port}", 1)
	if text == string(sample) {
		t.Fatalf("the sample has no %s", theirs)
	}
	file := filepath.Join(t.TempDir(), "full.yaml")
	testenv.Must(t, os.WriteFile(file, []byte(text), 0o644))
	var out, errs sink
	if code := run([]string{"check", "-c", file}, &out, &errs); code != 0 {
		t.Fatalf("check: status %d\n%s", code, errs)
	}
	if want := regexp.MustCompile(`^\S+: ok \([1-9][0-9]* flows, 2 workers, region 512MiB on 2MiB pages\)\n`); !want.Match(out) {
		t.Errorf("check prints %q, want %q", out, want)
	}
}

// TestFullDisk: output that cannot be written is an error, not a success.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	testenv.Must(t, err)
	defer full.Close()
	for _, args := range [][]string{{"version"}, {"version", "--json"}} {
		if code := run(args, full, new(sink)); code != exitFailed {
			t.Errorf("%q to a full disk: status %d, want %d", args, code, exitFailed)
		}
	}
}

type sink []byte

func (s *sink) Write(p []byte) (int, error) { *s = append(*s, p...); return len(p), nil }
