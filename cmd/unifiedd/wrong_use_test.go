package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/wronguse"
)

// TestWrongUse: every command reports each wrong use of its flags and arguments. The test walks the
// tree of commands, so it covers new commands without a change.
func TestWrongUse(t *testing.T) {
	testenv.Root(t)
	root, _ := newRoot()
	w := newWrong(t)
	cases := []wronguse.Case{
		{Name: "unknown command", Args: []string{"nonsense"}, Status: exitUsage, Says: []string{"nonsense", "capture"}},
		{Name: "unknown flag", Args: []string{"--nonsense"}, Status: exitUsage, Says: []string{"--nonsense"}},
		{Name: "help about nothing", Args: []string{"help", "nonsense"}, Status: exitUsage, Says: []string{"nonsense"}},
	}
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			cases = append(cases, w.command(c)...)
		}
	}
	wronguse.RunBy(t, "unifiedd", cases, func(t *testing.T, args []string, errs io.Writer) int {
		if usage := slices.ContainsFunc(cases, func(c wronguse.Case) bool { return c.Status == exitUsage && slices.Equal(c.Args, args) }); usage {
			return run(args, io.Discard, errs) // it does not come to a process of its own
		}
		cmd := exec.CommandContext(t.Context(), program(t), args...)
		cmd.Stderr = errs
		_ = cmd.Run() // its status is checked
		return cmd.ProcessState.ExitCode()
	})
}

// wrong has names that no command can use, in a directory in which nothing may change.
type wrong struct {
	dir   string
	files map[string]string // the fault of a file, and its path
}

func newWrong(t *testing.T) *wrong {
	t.Helper()
	dir := t.TempDir()
	w := &wrong{dir: dir, files: map[string]string{}}
	at := func(what, name string) string { w.files[what] = filepath.Join(dir, name); return w.files[what] }
	at("missing file", "missing.yaml")
	testenv.Must(t, os.Mkdir(at("directory in place of a file", "directory.yaml"), 0o755))
	write(t, at("empty file", "empty.yaml"), nil)
	write(t, at("text in place of a capture", "text.yaml"), []byte("nonsense\n"))
	testenv.Must(t, os.Symlink("nowhere", at("link to nothing", "link.yaml")))
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
		t.Fatal(err)
	} else if err := unix.Bind(fd, &unix.SockaddrUnix{Name: at("socket that nobody listens on", "socket.yaml")}); err != nil {
		t.Fatal(err)
	}
	return w
}

// mayHaveNothing are commands that succeed without arguments.
var mayHaveNothing = []string{"version", "doctor", "demo", "report", "trace", "top", "bash", "zsh", "fish", "powershell"}

// command returns each wrong use of a command and of its subcommands.
func (w *wrong) command(c *cobra.Command) (all []wronguse.Case) {
	path := strings.Fields(c.CommandPath())[1:]
	with := func(more ...string) []string { return slices.Concat(path, more) }
	all = append(all, wronguse.Case{Name: "unknown flag", Args: with("--nonsense"), Status: exitUsage, Says: []string{"--nonsense", c.CommandPath()}})
	all = append(all, wronguse.Case{Name: "unknown letter", Args: with("-#"), Status: exitUsage, Says: []string{"#", c.CommandPath()}})
	if c.HasSubCommands() {
		all = append(all, wronguse.Case{Name: "no command below it", Args: with(), Status: exitUsage, Says: []string{c.Commands()[0].Name()}},
			wronguse.Case{Name: "unknown command below it", Args: with("nonsense"), Status: exitUsage, Says: []string{"nonsense", c.Commands()[0].Name()}})
		for _, sub := range c.Commands() {
			all = append(all, w.command(sub)...)
		}
		return all
	}
	flags, args := w.valid(c)
	if len(flags)+len(args) > 0 {
		all = append(all, wronguse.Case{Name: "nothing given", Args: with(), Status: exitUsage, Says: []string{c.CommandPath()}})
	}
	for name := range flags {
		if len(flags) > 1 || len(args) > 0 {
			all = append(all, wronguse.Case{Name: "--" + name + " is missing", Args: with(slices.Concat(w.given(flags, name), args)...), Status: exitUsage, Says: []string{"--" + name}})
		}
	}
	given := w.given(flags, "")
	if len(args) > 0 && len(flags) > 0 {
		all = append(all, wronguse.Case{Name: "argument is missing", Args: with(given...), Status: exitUsage, Says: []string{c.CommandPath()}})
	}
	many := slices.Repeat([]string{"nonsense"}, 5)
	if c.Args(c, many) != nil {
		all = append(all, wronguse.Case{Name: "too many arguments", Args: with(slices.Concat(given, many)...), Status: exitUsage, Says: []string{"nonsense", "too many"}})
	}
	all = append(all, w.values(c, with, given, args)...)
	return append(all, w.inputs(c, with, flags, args)...)
}

// valid returns the flags that a command requires, with a value, and as many arguments as it
// requires. The values cannot be used.
func (w *wrong) valid(c *cobra.Command) (flags map[string]string, args []string) {
	flags = map[string]string{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		group := f.Annotations[oneRequired]
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil || len(group) > 0 && strings.Fields(group[0])[0] == f.Name {
			flags[f.Name] = w.files["missing file"]
			if f.Name == "interface" || f.Name == "intf1" || f.Name == "rdma" {
				flags[f.Name] = "no-such-link"
			}
		}
	})
	for c.Args(c, args) != nil && len(args) < 4 {
		args = append(args, w.files["missing file"])
	}
	return flags, args
}

// given returns those flags except one.
func (w *wrong) given(flags map[string]string, without string) (args []string) {
	for name, value := range flags {
		if name != without {
			args = append(args, "--"+name+"="+value)
		}
	}
	return args
}

// values returns wrong uses that give a wrong value to each flag that is not text.
func (w *wrong) values(c *cobra.Command, with func(...string) []string, given, args []string) (all []wronguse.Case) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "string", "stringArray", "count", "func":
			return
		}
		all = append(all, wronguse.Case{Name: "bad value of --" + f.Name, Args: with(slices.Concat(given, []string{"--" + f.Name + "=nonsense"}, args)...), Status: exitUsage, Says: []string{"--" + f.Name, "nonsense", "(give "}, Dir: w.dir})
	})
	if c.Name() == "capture" {
		all = append(all, wronguse.Case{Name: "no packets", Args: with(append(given, "-c", "0")...), Status: exitUsage, Says: []string{"-c 0"}},
			wronguse.Case{Name: "packets below zero", Args: with(append(given, "-c", "-1")...), Status: exitUsage, Says: []string{"-c, --count", `"-1"`, "0 or more"}},
			wronguse.Case{Name: "too many packets", Args: with(append(given, "-c", "99999999999999999999")...), Status: exitUsage, Says: []string{"64 bits"}})
	}
	return all
}

// inputs returns wrong uses that give a command each unusable file, as each argument and as each
// required flag.
func (w *wrong) inputs(c *cobra.Command, with func(...string) []string, flags map[string]string, args []string) (all []wronguse.Case) {
	if slices.Contains(mayHaveNothing, c.Name()) {
		return nil
	}
	for what, path := range w.files {
		for name, usual := range flags {
			if usual == w.files["missing file"] {
				all = append(all, wronguse.Case{Name: what + " as --" + name, Args: with(slices.Concat(w.given(flags, name), []string{"--" + name + "=" + path}, args)...), Says: []string{path}, Dir: w.dir})
			}
		}
		if len(args) > 0 && !slices.Contains([]string{"start", "stop", "restart", "status"}, c.Name()) {
			one := wronguse.Case{Name: what + " as argument", Args: with(append(w.given(flags, ""), path)...), Says: []string{path}, Dir: w.dir}
			if c.Name() == "replay" {
				one.Args = with("-i", "lo", path)
			}
			if c.Name() == "tune" && slices.Contains([]string{"missing file", "empty file", "link to nothing", "text in place of a capture"}, what) {
				continue // it measures with such a file, if there are huge pages
			}
			all = append(all, one)
		}
		if c.Flags().Lookup("socket") != nil {
			more := args
			if c.Name() == "check" {
				more = []string{"--plan"}
			}
			all = append(all, wronguse.Case{Name: what + " as --socket", Args: with(append([]string{"--socket=" + path}, more...)...), Status: exitFailed, Says: []string{path}, Dir: w.dir})
		}
	}
	return all
}
