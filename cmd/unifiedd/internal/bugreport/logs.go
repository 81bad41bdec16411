package bugreport

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// logItems returns the files with the last lines of logs.
func logItems(o Options) []Item {
	items := []Item{{"kernel-log.txt", func(_ context.Context, w io.Writer) error { return kernelLog(w, o.Lines) }}}
	if o.Unit != "" {
		items = append(items, Item{"journal.txt", func(ctx context.Context, w io.Writer) error { return journal(ctx, w, o.Unit, o.Lines) }})
	}
	for i, path := range o.Logs {
		items = append(items, Item{fmt.Sprintf("log-%d.txt", i+1), func(_ context.Context, w io.Writer) error {
			text, err := lastLines(path, o.Lines)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "the last lines of %s\n", filepath.Clean(path))
			_, err = w.Write(text)
			return err
		}})
	}
	return items
}

// journal writes the last lines of a unit in systemd's journal, without the host's name.
func journal(ctx context.Context, w io.Writer, unit string, lines int) error {
	if _, err := os.Stat("/run/systemd/journal"); err != nil {
		fmt.Fprintln(w, "this machine has no journal: name the file that has the daemon's log with --log")
		return nil
	}
	if _, err := exec.LookPath("journalctl"); err != nil {
		return err
	}
	if err := runCommand(ctx, w, "systemctl", "--no-pager", "--lines=0", "status", unit); err != nil {
		return err
	}
	return runCommand(ctx, w, "journalctl", "--no-pager", "--quiet", "--no-hostname", "--output=short-iso-precise", "--lines="+strconv.Itoa(lines), "--unit="+unit)
}

// Actions of syslog(2).
const (
	syslogReadAll = 3
	syslogSize    = 10
)

// kernelLog writes the last lines of the kernel's log.
func kernelLog(w io.Writer, lines int) error {
	size, err := unix.Klogctl(syslogSize, nil)
	if err != nil {
		return fmt.Errorf("read the kernel's log: %w (it takes root, or kernel.dmesg_restrict=0)", err)
	}
	text := make([]byte, max(size, 1))
	n, err := unix.Klogctl(syslogReadAll, text)
	if err != nil {
		return fmt.Errorf("read the kernel's log: %w (it takes root, or kernel.dmesg_restrict=0)", err)
	}
	_, err = w.Write(maskKernelLog(tail(text[:n], lines)))
	return err
}
