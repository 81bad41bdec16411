package bugreport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
)

// Item is one file of a report.
type Item struct {
	Name string // of the file, which is not secret
	// Collect writes the file. If it returns an error, the report has what it wrote before, and
	// contents.txt has the error. It should end when the context does.
	Collect func(ctx context.Context, w io.Writer) error
}

// Options say what a report is about.
type Options struct {
	Config  string    // path of the configuration; empty: there is none
	Load    Loader    // checks a configuration
	Socket  string    // control socket of the daemon
	Unit    string    // systemd unit whose log to read; empty: none
	Logs    []string  // log files whose last lines to add
	Lines   int       // the number of lines of each log
	Redact  bool      // replace addresses and the host's name
	Version string    // of this program
	Time    time.Time // of the report
	// Print writes the daemon's status for people. It gets JSON of a status.Daemon.
	Print func(w io.Writer, raw []byte) error
	First []Item // additional files, before all others
}

// Loader reads and checks a configuration.
type Loader func(path string) (*config.Config, error)

// Limits of one file of a report.
const (
	mostBytes = 8 << 20
	mostTime  = 20 * time.Second
)

// Result is the outcome of a report.
type Result struct {
	Files   int
	Failed  []string // names of files that are not complete
	Answers bool     // the daemon answered
	Why     error    // why it did not
}

// file is one collected file.
type file struct {
	name string
	text []byte
	err  error
}

// Write collects a report and writes it to w, as a compressed tar archive. The error is that of
// writing. What could not be collected is in the Result, and in the archive.
func Write(ctx context.Context, w io.Writer, o Options) (Result, error) {
	d := ask(ctx, o.Socket)
	hidden := findSecrets(o, d.pid)
	var files []file
	for _, item := range items(o, d, hidden) {
		files = append(files, collect(ctx, item))
	}
	change := hidden.remove
	if o.Redact {
		r := newRedactor(hostName())
		change = func(text []byte) []byte { return r.redact(hidden.remove(text)) }
	}
	r := Result{Files: len(files) + 1, Answers: d.err == nil, Why: d.err}
	for i := range files {
		files[i].text = change(files[i].text)
		if files[i].err != nil {
			r.Failed = append(r.Failed, files[i].name)
		}
	}
	files = append([]file{{name: "contents.txt", text: change(contents(o, d, files))}}, files...)
	return r, archive(w, o.Time, files)
}

// items returns the files of a report in their order.
func items(o Options, d *answers, hidden *secrets) []Item {
	all := append([]Item{}, o.First...)
	all = append(all, d.items(o)...)
	all = append(all, configItems(o, hidden)...)
	all = append(all, ringItems(d.pid)...)
	all = append(all, processItems(d.pid)...)
	all = append(all, machineItems()...)
	return append(all, logItems(o)...)
}

// collect runs a collector within its limits.
func collect(ctx context.Context, item Item) file {
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	b := &bounded{left: mostBytes}
	err := item.Collect(ctx, b)
	if b.cut {
		err = errors.Join(err, fmt.Errorf("the file is longer than %d bytes and ends there", mostBytes))
	}
	return file{item.Name, b.Bytes(), err}
}

// bounded is a buffer that accepts everything and keeps the beginning.
type bounded struct {
	bytes.Buffer
	left int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.cut = b.cut || n < len(p)
	b.Buffer.Write(p[:n])
	return len(p), nil
}

// contents returns the text of contents.txt: what the report is, and what each file lacks.
func contents(o Options, d *answers, files []file) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Report of unifiedd %s, %s\n\n", o.Version, o.Time.UTC().Format(time.RFC3339))
	if d.err != nil {
		fmt.Fprintf(&b, "The daemon did not answer on %s: %v\n", o.Socket, d.err)
		fmt.Fprintf(&b, "So the report has no status and no metrics, and the rest is as it was then.\n")
	} else {
		fmt.Fprintf(&b, "The daemon answered on %s, as process %d.\n", o.Socket, d.pid)
	}
	if o.Config == "" {
		fmt.Fprintln(&b, "No configuration was found: name it with -c.")
	} else {
		fmt.Fprintf(&b, "The configuration is %s.\n", o.Config)
	}
	fmt.Fprintln(&b, "Secrets are replaced by "+mark+".")
	if o.Redact {
		fmt.Fprintln(&b, "Addresses and the host's name are replaced. Each has the same number in all files.")
	} else {
		fmt.Fprintln(&b, "Addresses are as they are: unifiedd report --redact replaces them.")
	}
	fmt.Fprintln(&b)
	for _, f := range files {
		fmt.Fprintf(&b, "%-20s %8d bytes\n", f.name, len(f.text))
		if f.err != nil {
			fmt.Fprintf(&b, "    not complete: %v\n", f.err)
		}
	}
	return b.Bytes()
}

// archive writes the files in a directory that is named for the time.
func archive(w io.Writer, at time.Time, files []file) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: path.Join(Name(at), f.name), Mode: 0o600, Size: int64(len(f.text)), ModTime: at, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
		if _, err := t.Write(f.text); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// Name returns the usual name of a report, without an extension.
func Name(at time.Time) string { return "unifiedd-report-" + at.UTC().Format("20060102T150405Z") }

// hostName returns the host's name, or nothing.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
