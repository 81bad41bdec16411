package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json; go doc test2json gives the fields.
type event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64
	Output      string
	ImportPath  string // of build-output and build-fail
	FailedBuild string // of the fail event of a package that did not build
}

// result is a test that has ended.
type result struct {
	pkg, test string
	reason    string // of a skip
	elapsed   time.Duration
}

func (r result) name() string { return r.pkg + "." + r.test }

// summary collects the events of one or several runs.
type summary struct {
	out     io.Writer
	running map[string]*pkg   // by import path
	builds  map[string]string // the compiler's output, by import path
	passed  int
	ended   []result
	skipped []result
	failed  []failure

	quarantine  map[string]string // package.Test to the line of the file
	quarantined []failure
}

// failure is a failed test and its output.
type failure struct {
	name      string // package.Test, with more where that is not all
	pkg, test string // test is "" where the package failed, or a test did not end
	text      string
}

// pkg is a package whose tests are running.
type pkg struct {
	output map[string]*strings.Builder // by test; "" is the package's own
	open   map[string]bool             // tests that have started and not ended
	passed int
	failed int
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, running: make(map[string]*pkg), builds: make(map[string]string)}
}

func newPkg() *pkg {
	return &pkg{output: make(map[string]*strings.Builder), open: make(map[string]bool)}
}

// read reads every line of r. Packages that never end count as failed.
func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	for name := range s.running {
		s.endPackage(event{Action: "fail", Package: name})
	}
	return nil
}

func (s *summary) line(line string) {
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		fmt.Fprint(s.out, line)
		return
	}
	s.event(e)
}

func (s *summary) event(e event) {
	switch {
	case e.Action == "build-output":
		s.builds[e.ImportPath] += e.Output
	case e.Package == "":
	case e.Action == "start":
		s.running[e.Package] = newPkg()
	case e.Action == "output":
		s.pkg(e).write(e.Test, e.Output)
	case e.Action == "run":
		s.pkg(e).open[e.Test] = true
	case e.Test == "" && ends(e.Action):
		s.endPackage(e)
	case ends(e.Action):
		s.endTest(e)
	}
}

func ends(action string) bool { return action == "pass" || action == "fail" || action == "skip" }

func (s *summary) pkg(e event) *pkg {
	p := s.running[e.Package]
	if p == nil {
		p = newPkg()
		s.running[e.Package] = p
	}
	return p
}

func (p *pkg) write(test, text string) {
	if p.output[test] == nil {
		p.output[test] = new(strings.Builder)
	}
	p.output[test].WriteString(text)
}

// take returns the output of a test and deletes it.
func (p *pkg) take(test string) string {
	b := p.output[test]
	if b == nil {
		return ""
	}
	delete(p.output, test)
	return b.String()
}

func (s *summary) endTest(e event) {
	p := s.pkg(e)
	delete(p.open, e.Test)
	text := p.take(e.Test)
	r := result{pkg: e.Package, test: e.Test, elapsed: time.Duration(e.Elapsed * float64(time.Second))}
	s.ended = append(s.ended, r)
	switch e.Action {
	case "pass":
		p.passed++
		s.passed++
	case "skip":
		r.reason = reason(text)
		s.skipped = append(s.skipped, r)
	case "fail":
		p.failed++
		s.fail(failure{name: r.name(), pkg: e.Package, test: e.Test, text: text})
	}
}

// readQuarantine reads the list of tests whose failures do not count.
func (s *summary) readQuarantine(file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the quarantine: %w", err)
	}
	s.quarantine = make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" && !strings.HasPrefix(name, "#") {
			s.quarantine[name] = strings.TrimSpace(line)
		}
	}
	return nil
}

// fail counts a failure and prints its output.
func (s *summary) fail(f failure) {
	f.text = strings.TrimRight(f.text, "\n")
	top, _, _ := strings.Cut(f.test, "/")
	if f.test != "" && s.quarantine[f.pkg+"."+top] != "" {
		s.quarantined = append(s.quarantined, f)
	} else {
		s.failed = append(s.failed, f)
	}
	fmt.Fprintf(s.out, "\n--- failed: %s\n%s\n", f.name, f.text)
}

// reason is the output of a skipped test without the framework's lines.
func reason(text string) string {
	var said []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}

// endPackage counts results that are known only at the package's end: benchmarks, tests that never
// ended, and a failure outside of any test.
func (s *summary) endPackage(e event) {
	p := s.pkg(e)
	delete(s.running, e.Package)
	rest := s.endBenchmarks(p)
	for test := range p.open {
		p.failed++
		s.fail(failure{name: e.Package + "." + test + " (never ended)", pkg: e.Package, text: p.take(test)})
	}
	if e.Action == "fail" && p.failed == 0 {
		p.failed++
		s.fail(failure{name: e.Package, pkg: e.Package, text: s.builds[e.FailedBuild] + rest + p.take("")})
	} else if text := p.take(""); p.failed > 0 {
		fmt.Fprint(s.out, text)
	}
	s.tell(e, p)
}

// endBenchmarks counts the benchmarks that printed a result, since that is the only sign that one
// has ended. It returns the output of the others: groups, which have no result of their own, and a
// benchmark that ended the process.
func (s *summary) endBenchmarks(p *pkg) (rest string) {
	for _, name := range slices.Sorted(maps.Keys(p.open)) {
		if !strings.HasPrefix(name, "Benchmark") {
			continue
		}
		delete(p.open, name)
		text := p.take(name)
		if strings.Contains(text, " ns/op") {
			p.passed++
			s.passed++
			continue
		}
		rest += text
	}
	return rest
}

// tell prints the package's line. Packages without tests have none.
func (s *summary) tell(e event, p *pkg) {
	switch {
	case e.Action == "skip":
	case p.failed > 0:
		fmt.Fprintf(s.out, "FAIL  %-50s %3d passed, %d failed\n", e.Package, p.passed, p.failed)
	default:
		fmt.Fprintf(s.out, "ok    %-50s %3d passed %7.1fs\n", e.Package, p.passed, e.Elapsed)
	}
}
