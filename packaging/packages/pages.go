package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// pages are manual pages and completions. They do not depend on the architecture.
type pages struct {
	*source
	bin string // the programs for this machine
	dir string
}

// selfTests are the programs besides the daemon, with what they do.
var selfTests = map[string]string{
	"unified-flow-test": "speak with flows, and verify every byte",
	"unified-nvme-test": "measure and verify disks with io_uring",
	"unified-rdma-test": "measure and verify an interface, an RDMA device and a disk together",
	"unified-tick-test": "measure tick to trade, from a packet of market data to the order over TCP",
	"unified-xdp-test":  "measure and verify network interfaces with AF_XDP",
}

// make writes the manual pages to man and the completions to completion.
func (p pages) make() error {
	for _, dir := range []string{"man", "completion"} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
			return err
		}
	}
	manual := filepath.Join(p.dir, "manual")
	if err := p.build(environment(runtime.GOARCH), manual, "verbs,manual", "./cmd/unifiedd"); err != nil {
		return err
	}
	if _, err := p.program(manual, "manual", "--date", p.at.Format(time.DateOnly), filepath.Join(p.dir, "man")); err != nil {
		return err
	}
	for name, what := range selfTests {
		text, err := p.program(filepath.Join(p.bin, name), "--help")
		if err != nil {
			return err
		}
		if err := p.write("man/"+name+".1", p.page(name, 1, selfTest(name, what, text))); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(filepath.Join(p.root, "docs", "reference", "configuration.md"))
	if err != nil {
		return err
	}
	if err := p.write("man/unifiedd.yaml.5", p.page("unifiedd.yaml", 5, configuration(string(text)))); err != nil {
		return err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := p.program(filepath.Join(p.bin, "unifiedd"), "completion", shell)
		if err != nil {
			return err
		}
		if err := p.write("completion/"+shell, text); err != nil {
			return err
		}
	}
	return nil
}

// program runs one of the programs and returns what it prints.
func (p pages) program(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "NO_COLOR=1", "COLUMNS=80")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, &errs)
	}
	if len(out) == 0 {
		out = errs.Bytes() // of programs that print their help there
	}
	return out, nil
}

func (p pages) write(name string, text []byte) error {
	return os.WriteFile(filepath.Join(p.dir, filepath.FromSlash(name)), text, 0o644)
}

// page turns Markdown into a manual page.
func (p pages) page(name string, section int, text string) []byte {
	head := fmt.Sprintf("%% %q %q %q %q %q\n", strings.ToUpper(name), fmt.Sprint(section), p.at.Format("Jan 2006"), "unifiedd "+p.stamp, "unifiedd")
	return md2man.Render([]byte(head + text))
}

// selfTest returns the page of a self-test, which is its help.
func selfTest(name, what string, help []byte) string {
	return fmt.Sprintf("# NAME\n%s - %s\n\n# SYNOPSIS\n```\n%s```\n\n# SEE ALSO\n**unifiedd(1)**\n", name, what, help)
}

var (
	links  = regexp.MustCompile(`\[([^\]]*)\]\([^)\s]+\)`)
	title  = regexp.MustCompile(`(?m)\A(?:<!--.*-->\n\n)?# .*\n`)
	parts  = regexp.MustCompile(`(?m)^#(#+ )`)
	tables = regexp.MustCompile(`(?m)^\| key \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)`)
	// A table whose first cell says what its rows and columns are.
	matrices = regexp.MustCompile(`(?m)^\|[^|\n]*\\[^|\n]*\|.*\n\|[-| ]+\|\n((?:\|.*\n)+)`)
	cells    = regexp.MustCompile(`(?:[^|\\]|\\.)+`)
)

// configuration returns the page of the configuration's file. Links between documents lead nowhere in
// a manual page, and their texts stay. Tables of keys are too wide for a terminal, and become lists.
func configuration(text string) string {
	text = title.ReplaceAllString(text, "")
	text = links.ReplaceAllString(text, "$1")
	text = parts.ReplaceAllString(text, "$1")
	text = strings.ReplaceAll(text, "`packaging/unifiedd.yaml`", "`"+documents+"/examples/unifiedd.yaml`")
	text = tables.ReplaceAllStringFunc(text, func(table string) string {
		var b strings.Builder
		for row := range strings.Lines(tables.FindStringSubmatch(table)[1]) {
			b.WriteString(entry(strings.Trim(strings.TrimSpace(row), "|")))
		}
		return b.String()
	})
	text = matrices.ReplaceAllStringFunc(text, matrix)
	return "# NAME\nunifiedd.yaml - configuration of unifiedd\n\n# DESCRIPTION\n" + text + "\n# FILES\n/etc/unifiedd/unifiedd.yaml, and the other documents in " + documents + "\n\n# SEE ALSO\n**unifiedd(1)**, **unifiedd-check(1)**\n"
}

// entry returns the entry of a list for a row of a table: key, values, default, meaning.
func entry(row string) string {
	var c []string
	for _, cell := range cells.FindAllString(row, -1) {
		c = append(c, strings.TrimSpace(strings.ReplaceAll(cell, `\|`, "|")))
	}
	if len(c) != 4 {
		return row + "\n\n"
	}
	key, values, usual, meaning := strings.Trim(c[0], "`"), c[1], c[2], c[3]
	if usual != "needed" {
		usual = "default: " + usual
	}
	return fmt.Sprintf("**%s**\n: %s (%s).\n%s\n\n", key, values, usual, meaning)
}

// matrix returns a list of the cells of a table that have a text.
func matrix(table string) string {
	var b strings.Builder
	lines := strings.Split(strings.TrimSpace(table), "\n")
	row := func(line string) []string { return strings.Split(strings.Trim(line, "|"), "|") }
	columns := row(lines[0])
	for _, line := range lines[2:] {
		for i, cell := range row(line) {
			if cell = strings.TrimSpace(cell); i > 0 && cell != "" {
				fmt.Fprintf(&b, "- %s to %s: %s\n", strings.TrimSpace(row(line)[0]), strings.TrimSpace(columns[i]), cell)
			}
		}
	}
	return b.String() + "\n"
}

// compress returns a text as gzip does, without a time.
func compress(text []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}
