package documents

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCommands: the commands of the README, of each tutorial and of each how-to run as they stand there, on machines whose
// eth1 has 10.0.0.1, 10.0.0.2 and so on. Each prints the lines that the page shows, in their order; times and rates may
// differ.
func TestCommands(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 448<<20)
	names := []string{"README.md", "docs/README.md"}
	for _, dir := range []string{"tutorials", "how-to"} {
		found, err := filepath.Glob(filepath.Join(root, "docs", dir, "*.md"))
		testenv.Must(t, err)
		if len(found) < 6 {
			t.Fatalf("found %d %s", len(found), dir)
		}
		for _, name := range found {
			names = append(names, strings.TrimPrefix(name, root+"/"))
		}
	}
	for name := range pages {
		if !slices.Contains(names, name) {
			t.Errorf("%s is no page", name)
		}
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(name, "docs/"), ".md"), func(t *testing.T) { follow(t, read(t, filepath.Join(root, name)), pages[name]) })
	}
}

// machineOf are the machines of prompts, in the order of their addresses.
var machineOf = map[string]int{"": 0, "here": 0, "there": 1, "a": 0, "b": 1, "c": 2, "d": 3, "client": 3, "registry": 4}

// console matches a block of commands with what they print, prompt a command in it, fences all blocks with a language, other what
// looks like a command elsewhere, and saved the name of the file that a tutorial has the reader write.
var (
	console = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
	prompt  = regexp.MustCompile(`^([a-z]*)\$ (.*)$`)
	fences  = regexp.MustCompile("(?ms)^```[a-z]+\n.*?^```$")
	other   = regexp.MustCompile("(?m)^(```|    [a-z][a-z0-9-]* ).*$")
	saved   = regexp.MustCompile("Write `([a-z]+\\.yaml)`")
)

// step is a command of a page, and what it prints there.
type step struct {
	machine, command string
	output           []string
}

// parse returns the commands of a block.
func parse(block string) (steps []step) {
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		n := len(steps)
		switch m := prompt.FindStringSubmatch(line); {
		case m != nil:
			steps = append(steps, step{machine: m[1], command: m[2]})
		case n > 0 && strings.HasSuffix(steps[n-1].command, "\\"):
			steps[n-1].command += "\n" + line
		case n > 0:
			steps[n-1].output = append(steps[n-1].output, line)
		}
	}
	return steps
}

// follow runs the commands of a page.
func follow(t *testing.T, text string, p page) {
	for _, m := range other.FindAllString(fences.ReplaceAllString(text, ""), -1) {
		t.Errorf("a line is neither of a configuration nor a command with a prompt: %s", m)
	}
	var steps []step
	for _, block := range console.FindAllStringSubmatch(text, -1) {
		steps = append(steps, parse(block[1])...)
	}
	names := make(map[string]bool)
	for _, s := range steps {
		names[s.command] = true
	}
	for _, of := range []map[string]string{p.first, p.lacks, p.elsewhere} {
		for command := range of {
			if !names[command] {
				t.Errorf("the page has no command %s", command)
			}
		}
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { return p.elsewhere[s.command] != "" })
	for command, where := range p.elsewhere {
		checkTest(t, command, where)
	}
	if len(steps) == 0 || p.long && testing.Short() {
		return
	}
	all := parse(p.before)
	for _, s := range steps {
		all = append(append(all, parse(p.first[s.command])...), s)
	}
	steps = append(all, parse(p.after)...)
	n := 2
	for _, s := range steps {
		i, known := machineOf[s.machine]
		if !known {
			t.Fatalf("no machine is called %s", s.machine)
		}
		n = max(n, i+1)
	}
	dir := reachable(t)
	shells := make([]*shell, n)
	ends := testenv.NewSwitch(t, n, testenv.PairOptions{MTU: 4200})
	for i, e := range ends {
		rename(t, e, "eth1", fmt.Sprintf("10.0.0.%d/24", i+1))
	}
	for _, s := range steps {
		i := machineOf[s.machine]
		if shells[i] == nil {
			shells[i] = newShell(t, ends[i], filepath.Join(dir, fmt.Sprint(i)), text)
		}
		shells[i].run(t, s, p.lacks[s.command])
	}
}

// checkTest checks that the test which runs a command exists: "directory TestName".
func checkTest(t *testing.T, command, where string) {
	t.Helper()
	dir, name, _ := strings.Cut(where, " ")
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	testenv.Must(t, err)
	if !slices.ContainsFunc(files, func(file string) bool { return strings.Contains(read(t, file), "\nfunc "+name+"(") }) {
		t.Errorf("%s is run by %s, which does not exist", command, where)
	}
}

// reachable makes a directory that every user can reach.
func reachable(t *testing.T) string {
	t.Helper()
	dir := testenv.DiskDir(t)
	for path := dir; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) {
		testenv.Must(t, os.Chmod(path, 0o755))
	}
	return dir
}

// differs matches what is another one each time: times, rates, numbers of processes, hashes.
var differs = regexp.MustCompile(`[0-9a-f]{64}|\d+-\d+-\d+T[0-9:.]+Z|\d+:\d+:\d+\.\d+|\d+\.\d+ |\bid \d+|time \d+ms|\d+ messages/s|position \d+ of the log`)

// missing returns the first line that is not in a text behind those before it.
func missing(text string, lines []string) string {
	got := strings.Split(text, "\n")
	for _, line := range lines {
		var want strings.Builder
		rest := 0
		for _, m := range differs.FindAllStringIndex(line, -1) {
			want.WriteString(regexp.QuoteMeta(line[rest:m[0]]) + ".+")
			rest = m[1]
		}
		want.WriteString(regexp.QuoteMeta(line[rest:]))
		i := slices.IndexFunc(got, regexp.MustCompile(want.String()).MatchString)
		if i < 0 {
			return line
		}
		got = got[i+1:]
	}
	return ""
}
