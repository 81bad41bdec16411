package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runReal writes files as a module, runs go test -json on it, and returns testsum's summary.
func runReal(t *testing.T, files map[string]string, allowed []*regexp.Regexp) (string, bool) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module m\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "-timeout", "2s", "-bench", ".", "-benchtime", "1x", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	events, _ := cmd.CombinedOutput()
	return summarize(t, string(events), allowed)
}

func summarize(t *testing.T, events string, allowed []*regexp.Regexp) (string, bool) {
	t.Helper()
	var out bytes.Buffer
	s := newSummary(&out)
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	ok := s.report(3, allowed, allowed != nil)
	return out.String(), ok
}

func wantLast(t *testing.T, out, last string) {
	t.Helper()
	if !strings.HasSuffix(out, "\n"+last+"\n") {
		t.Errorf("last line is not %q:\n%s", last, out)
	}
}

func wantAll(t *testing.T, out string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("output lacks %q:\n%s", text, out)
		}
	}
}

const mixed = `package a
import "testing"
func TestGood(t *testing.T) { t.Log("quiet"); t.Run("sub", func(t *testing.T) {}) }
func TestBad(t *testing.T) { t.Error("this is why") }
func TestSkip(t *testing.T) { t.Skip("no such card") }
`

func TestMixedRun(t *testing.T) {
	out, ok := runReal(t, map[string]string{"a/a_test.go": mixed, "b/b.go": "package b\n"}, nil)
	if ok {
		t.Error("a failed test is good")
	}
	wantLast(t, out, "2 passed, 1 failed, 1 skipped")
	wantAll(t, out, "this is why", "m/a.TestSkip: a_test.go:5: no such card", "Slowest:", "Failed:\n  m/a.TestBad\n    | ", "    |     a_test.go:4: this is why")
	if strings.Contains(out, "quiet") {
		t.Errorf("output of a passed test is shown:\n%s", out)
	}
}

func TestSkipsInCI(t *testing.T) {
	files := map[string]string{"a/a_test.go": "package a\nimport \"testing\"\nfunc TestS(t *testing.T) { t.Skip(\"lab: no card\") }\n"}
	for expr, want := range map[string]string{": lab: ": "  1 lab\n", "^m/a.TestS:": "  1 m/a.TestS\n", "^$": ""} {
		out, ok := runReal(t, files, []*regexp.Regexp{regexp.MustCompile(expr)})
		if ok != (want != "") {
			t.Errorf("allowing %q gives %v:\n%s", expr, ok, out)
		}
		wantAll(t, out, want)
		if told := strings.Contains(out, "no card"); told == ok {
			t.Errorf("allowing %q, the reason is printed: %v:\n%s", expr, told, out)
		}
		wantLast(t, out, "0 passed, 0 failed, 1 skipped")
	}
	if _, ok := runReal(t, files, nil); !ok {
		t.Error("a skip fails outside CI")
	}
}

func TestBuildFailure(t *testing.T) {
	out, ok := runReal(t, map[string]string{"a/a.go": "package a\n\nvar x int = nonsense\n", "a/a_test.go": mixed}, nil)
	if ok {
		t.Error("a build failure is good")
	}
	wantAll(t, out, "undefined: nonsense", "--- failed: m/a\n")
	wantLast(t, out, "0 passed, 1 failed, 0 skipped")
}

func TestPanicAndTimeout(t *testing.T) {
	out, ok := runReal(t, map[string]string{
		"a/a_test.go": "package a\nimport \"testing\"\nfunc TestP(t *testing.T) { panic(\"ouch\") }\n",
		"b/b_test.go": "package b\nimport \"testing\"\nfunc TestHang(t *testing.T) { select {} }\n",
		"c/c_test.go": "package c\nimport (\"os\"; \"testing\")\nfunc TestMain(m *testing.M) { println(\"gone\"); os.Exit(3) }\n",
	}, nil)
	if ok {
		t.Error("panics are good")
	}
	wantAll(t, out, "ouch", "TestHang", "--- failed: m/c\n", "gone")
	wantLast(t, out, "0 passed, 3 failed, 0 skipped")
}

func TestBenchmarks(t *testing.T) {
	const good = "package a\nimport \"testing\"\n" +
		"func BenchmarkA(b *testing.B) { b.Run(\"sub\", func(b *testing.B) { for b.Loop() {} }) }\n" +
		"func BenchmarkB(b *testing.B) { for b.Loop() {} }\n"
	out, ok := runReal(t, map[string]string{"a/a_test.go": good}, nil)
	if !ok {
		t.Error("good benchmarks are bad")
	}
	wantLast(t, out, "2 passed, 0 failed, 0 skipped")

	out, ok = runReal(t, map[string]string{
		// In another goroutine, since the main goroutine may exit with status 0 while a benchmark's own
		// goroutine unwinds.
		"a/a_test.go": good + "func BenchmarkC(b *testing.B) { go panic(\"ouch\"); select {} }\n",
		"b/b_test.go": good + "func BenchmarkC(b *testing.B) { b.Fatal(\"sorry\") }\n",
	}, nil)
	if ok {
		t.Error("failed benchmarks are good")
	}
	wantAll(t, out, "ouch", "sorry", "--- failed: m/a\n", "--- failed: m/b.BenchmarkC\n")
	wantLast(t, out, "4 passed, 2 failed, 0 skipped")
}

func TestNothingRan(t *testing.T) {
	out, ok := runReal(t, map[string]string{"a/a.go": "package a\n"}, nil)
	if ok {
		t.Error("no test at all is good")
	}
	wantLast(t, out, "0 passed, 0 failed, 0 skipped")
}

func TestSeveralRunsAndOtherLines(t *testing.T) {
	run := `{"Action":"start","Package":"m"}
{"Action":"run","Package":"m","Test":"T"}
{"Action":"pass","Package":"m","Test":"T","Elapsed":1.5}
{"Action":"pass","Package":"m","Elapsed":1.6}
`
	out, ok := summarize(t, "== first\n"+run+"== second\n"+run+"no newline", nil)
	if !ok {
		t.Error("two good runs are bad")
	}
	wantAll(t, out, "== first\n", "== second\n", "no newline", "1.5s  m.T")
	wantLast(t, out, "2 passed, 0 failed, 0 skipped")
}

func TestCutStream(t *testing.T) {
	out, ok := summarize(t, `{"Action":"start","Package":"m"}
{"Action":"run","Package":"m","Test":"T"}
{"Action":"output","Package":"m","Test":"T","Output":"last words\n"}
`, nil)
	if ok {
		t.Error("a run that stopped in the middle is good")
	}
	wantAll(t, out, "last words", "m.T (never ended)")
	wantLast(t, out, "0 passed, 1 failed, 0 skipped")
}

// TestExcerpt: the end of a summary has what a test itself said, also before the long log of a daemon.
func TestExcerpt(t *testing.T) {
	text := "=== RUN   TestX\n    x_test.go:7: the logs differ\n    x_test.go:8: time=1 level=INFO msg=a\n" +
		strings.Repeat("    a line of a log\n", 100) + "    x_test.go:9: " + strings.Repeat("y", 1000) + "\n" + strings.Repeat("    end\n", 12)
	got := strings.Join(excerpt(text), "\n")
	if !strings.Contains(got, "the logs differ") || strings.Contains(got, "msg=a") || strings.Contains(got, strings.Repeat("y", 500)) || strings.Count(got, "\n") > 20 {
		t.Error(got)
	}
}
