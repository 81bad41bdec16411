package wronguse

import (
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/wronguse"
)

// programs has the self-test programs, the unusable arguments that each takes, and its commands.
var programs = map[string]struct{ args, commands []string }{
	"unified-flow-test": {nil, []string{"append", "load", "receive", "read", "log", "packets", "send", "make"}},
	"unified-nvme-test": {[]string{"/nowhere/file"}, nil},
	"unified-rdma-test": {[]string{"no-such-link", "roce:no-such-link", "-", "server"}, nil},
	"unified-tick-test": {nil, []string{"exchange", "trader"}},
	"unified-xdp-test":  {[]string{"no-such-link"}, nil},
}

// TestWrongUse: each program refuses wrong options, arguments and values. The help lists the
// numeric options, so new ones are tested automatically.
func TestWrongUse(t *testing.T) {
	for name, p := range programs {
		program := testenv.Program(t, "selftests/"+name)
		commands := [][]string{nil}
		for _, c := range p.commands {
			commands = append(commands, []string{c})
		}
		var cases []wronguse.Case
		for i, path := range commands {
			with := func(more ...string) []string { return slices.Concat(path, more) }
			cases = append(cases, wronguse.Case{Name: "nothing given", Args: with(), Status: 2})
			if p.commands != nil && i == 0 {
				cases = append(cases, wronguse.Case{Name: "unknown command", Args: with("nonsense"), Status: 2, Says: []string{"nonsense", p.commands[0]}})
				continue
			}
			cases = append(cases,
				wronguse.Case{Name: "unknown option", Args: with("--nonsense"), Status: 2, Says: []string{"--nonsense", "--help"}},
				wronguse.Case{Name: "unknown option, one dash", Args: with("-nonsense"), Status: 2, Says: []string{"nonsense", "--help"}},
				wronguse.Case{Name: "unknown letter", Args: with("-#"), Status: 2, Says: []string{"#", "--help"}},
				wronguse.Case{Name: "too many arguments", Args: with(slices.Concat(p.args, []string{"a", "b", "c", "d", "e"})...), Status: 2, Says: []string{"--help"}},
			)
			if len(p.args) > 0 {
				cases = append(cases, wronguse.Case{Name: "what is not there", Args: p.args, Status: 1, Says: p.args[:1]})
			}
			for _, option := range numbers(t, program, path) {
				cases = append(cases, wronguse.Case{Name: "bad value", Args: with(slices.Concat([]string{"--" + option + "=nonsense"}, p.args)...), Status: 2, Says: []string{option, "nonsense"}})
				cases = append(cases, wronguse.Case{Name: "bad value, one dash, behind the arguments", Args: with(slices.Concat(p.args, []string{"-" + option, "nonsense"})...), Status: 2, Says: []string{option, "nonsense"}})
			}
		}
		t.Run(name, func(t *testing.T) { wronguse.Run(t, program, cases) })
	}
}

// numbers returns the numeric options of a program, or of a command of it, according to its help.
func numbers(t *testing.T, program string, path []string) (names []string) {
	t.Helper()
	out, err := exec.Command(program, append(slices.Clone(path), "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v: %s", program, err, out)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-., )?--([\w-]+) \S+ .*\(default \d`).FindAllSubmatch(out, -1) {
		names = append(names, string(m[1]))
	}
	if len(names) == 0 {
		t.Logf("%s %v has no options with numbers", program, path)
	}
	return names
}
