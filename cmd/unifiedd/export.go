package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/capfile"
	"github.com/unifiedd/unifiedd/internal/capinput"
	"github.com/unifiedd/unifiedd/internal/export"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// exportFlags are the flags of export.
type exportFlags struct {
	read     []string
	file     string
	from, to string
	numeric  bool
}

func newExport() *cobra.Command {
	var f exportFlags
	var want export.Select
	c := &cobra.Command{
		Use:   "export DEVICE|FILE... [-w FILE|-] [--from TIME] [--to TIME] [FILTER...]",
		Short: "Make a plain pcapng file of the capture on a device, or of segment files",
		Long: `Make a plain pcapng file of the ring of segments on a device, oldest first, or of
segment files, in the order given; packets of several queues or interfaces come in
the order of their times. Captures of other programs, pcap and pcapng, compressed (gzip,
zstd, lz4) or from standard input (-), are read as well. A FILE may be the prefix of the
segments of a recording flow, what its to.file says. What is read may be written by a capture
meanwhile; it is never written to. Segments that lie before or after the TIMEs are
not read, and of those with an index (see 'unifiedd index') only what may hold
packets of the times, addresses, ports and protocols asked for.

A TIME is like 2026-11-20T14:05:00Z (RFC 3339), 2026-11-20 14:05:00.25 (here and
now), 14:05 (today), -1h, -90s or -2d (before now), now, or seconds since 1970, also
behind an @. FILTER is tcpdump's, as in 'unifiedd capture'. Words before it that are no part
of a filter are FILEs; -r names one that could be taken for a word of a filter.`,
		Example: `  unifiedd export -r /dev/nvme0n1 -w feed.pcapng --from 14:05 udp port 5000
  unifiedd export /var/lib/unifiedd/feed -w - host 10.0.0.1 | tshark -r -
  unifiedd export feed-*.pcapng -w all.pcapng`,
		PreRunE: func(_ *cobra.Command, args []string) (err error) { // an error here is a usage error
			text, err := f.inputs(args)
			if err != nil {
				return err
			}
			want, err = f.choose(text, time.Now())
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return runExport(f, want, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	s := c.Flags()
	s.StringArrayVarP(&f.read, "read", "r", nil, "`DEVICE|FILE` to read; may be given several times")
	s.StringVarP(&f.file, "write", "w", "", "`FILE` to write, - for standard output; without it packets are counted only")
	s.StringVar(&f.from, "from", "", "packets from this `TIME` on, such as 14:05 or -1h")
	addNumeric(c, &f.numeric)
	s.StringVar(&f.to, "to", "", "packets before this `TIME`")
	return c
}

// inputs divides the arguments into files and the filter, which it returns. A prefix of segments becomes these.
func (f *exportFlags) inputs(args []string) (text string, err error) {
	n := 0
	for ; n < len(args); n++ {
		text = strings.Join(args[n:], " ")
		_, err := filter.Parse(text)
		if err == nil {
			break
		}
		if !isInput(args[n]) {
			if n > 0 || len(f.read) > 0 {
				return "", fmt.Errorf("filter %q: %w (and there is no file %s)", text, err, args[n])
			}
			return "", fmt.Errorf("%s: there is no such file, and no segment whose name begins so (and as a filter: %w)", args[n], err)
		}
		text = ""
	}
	f.read = append(f.read, args[:n]...)
	if len(f.read) == 0 {
		return "", errors.New("an argument is missing: name a FILE, a DEVICE or the prefix of segments")
	}
	f.read = withSegments(f.read)
	return text, nil
}

// withSegments returns names of files. The prefix of segments becomes these.
func withSegments(names []string) (all []string) {
	for _, name := range names {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) && name != "-" {
			if some := segmentsOf(name); some != nil {
				all = append(all, some...)
				continue
			}
		}
		all = append(all, name)
	}
	return all
}

// isInput reports whether a name is that of something to read.
func isInput(name string) bool {
	_, err := os.Lstat(name)
	return err == nil || name == "-" || segmentsOf(name) != nil
}

// segmentsOf returns the segments of a flow whose names begin with a prefix, in their order.
func segmentsOf(prefix string) []string {
	all, _ := filepath.Glob(prefix + "-*.pcapng") // an invalid pattern has no segments
	return slices.DeleteFunc(all, func(name string) bool {
		rest := name[len(prefix):]
		return !pcapng.LikeSegment(rest) || pcapng.LikeSegment(rest[1:]) // of the flow prefix-more
	})
}

// choose converts the flags to a selection.
func (f *exportFlags) choose(text string, now time.Time) (s export.Select, err error) {
	if s.From, err = instant("--from", f.from, now); err != nil {
		return s, err
	}
	if s.To, err = instant("--to", f.to, now); err != nil {
		return s, err
	}
	if s.To != 0 && s.To <= s.From {
		return s, fmt.Errorf("--to %s is not after --from %s", f.to, f.from)
	}
	e, err := filter.Parse(text)
	if err != nil {
		return s, fmt.Errorf("filter %q: %w", text, err)
	}
	if !e.All() {
		s.Need = e.Needs()
		s.Filter = func(of linktype.Type) (export.Match, error) { return matchOf(text, of) }
	}
	return s, nil
}

// matchOf compiles a filter for packets of a link type.
func matchOf(text string, of linktype.Type) (export.Match, error) {
	if !filter.Takes(of.Like()) {
		return nil, fmt.Errorf("filter %q: packets of this capture are of link type %v, and filters know %v and %v (export it without a filter)", text, of, linktype.Ethernet, linktype.RawIP)
	}
	e, err := filter.ParseFor(of.Like(), text)
	if err != nil {
		return nil, fmt.Errorf("filter %q for packets of link type %v: %w", text, of, err)
	}
	return e.Matcher().MatchCut, nil
}

func runExport(f exportFlags, want export.Select, stdout, stderr io.Writer) (err error) {
	to, end, err := f.output(stdout)
	if err != nil {
		return err
	}
	var cut error // of captures that are damaged; the packets before the damage are exported
	x := export.New(to, want)
	defer func() { err = errors.Join(err, end(err == nil && (cut == nil || x.Begun())), cut) }()
	for _, name := range f.read {
		if err = exportFrom(x, name, stderr); err != nil {
			err = fmt.Errorf("export %s: %w", name, err)
			if damage, is := errors.AsType[*capfile.Error](err); is && damage.Offset > 0 || errors.Is(err, capfile.ErrCut) || errors.Is(err, errHeadless) {
				cut, err = errors.Join(cut, err), nil
				continue
			}
			break
		}
	}
	sum, flushed := x.Close()
	err = errors.Join(err, flushed)
	if err == nil || sum.Packets > 0 && (f.file == "" || f.file == "-") { // otherwise there is no file
		tellExport(stderr, sum)
	}
	if sum.Unreadable > 0 {
		cut = errors.Join(cut, fmt.Errorf("%s of a ring: %w", plural(int(sum.Unreadable), "segment"), errHeadless))
	}
	return err
}

// output returns the writer for packets and the function that ends it. A file gets its name only if
// the export succeeded. output refuses an input file and a block device.
func (f *exportFlags) output(stdout io.Writer) (to io.Writer, end func(well bool) error, err error) {
	stays := func(bool) error { return nil }
	switch f.file {
	case "":
		return io.Discard, stays, nil
	case "-":
		return stdout, stays, nil
	}
	old, err := os.Stat(f.file)
	switch {
	case err != nil:
	case old.Mode()&fs.ModeDevice != 0 && old.Mode()&fs.ModeCharDevice == 0:
		return nil, nil, fmt.Errorf("write %s: it is a block device: choose a file", f.file)
	case old.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0:
		pipe, err := openPipe(f.file)
		return pipe, func(bool) error { return pipe.Close() }, err
	}
	for _, name := range f.read {
		if read, err := os.Stat(name); err == nil && os.SameFile(old, read) {
			return nil, nil, fmt.Errorf("write %s: it is the input: choose another name", f.file)
		}
	}
	out, err := newfile.Replace(f.file, 0o666)
	if err != nil {
		return nil, nil, fmt.Errorf("write %s: %w", f.file, err)
	}
	return out, func(well bool) error {
		if !well {
			return out.Discard()
		}
		return out.Commit()
	}, nil
}

// exportFrom exports a ring or a segment file.
func exportFrom(x *export.Exporter, name string, stderr io.Writer) error {
	if name == "-" || name == capinput.Standard || isPipe(name) {
		return exportCapture(x, cmp.Or(strings.TrimPrefix(name, "-"), capinput.Standard))
	}
	in, err := ring.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	found, err := ring.Find(in, uint64(size))
	switch {
	case errors.Is(err, ring.ErrNone):
		if err := x.AddFile(in, size); !errors.Is(err, pcapng.ErrNotSegment) {
			return err
		}
		return exportHeadless(x, in, size, name)
	case err != nil:
		return err
	case found.Damage != nil:
		fmt.Fprintf(stderr, "%s: %v (the next capture to it mends that)\n", name, found.Damage)
	}
	return x.AddRing(in, found.Ring)
}

// errHeadless reports that a segment's head cannot be read.
var errHeadless = errors.New("the head is not readable: its packets are missing or incomplete")

// exportHeadless exports a file without a valid segment head. If the file was a segment, it exports
// as much as other readers can read, and returns errHeadless.
func exportHeadless(x *export.Exporter, in *os.File, size int64, name string) error {
	ours := pcapng.LikeSegment(name)
	err := pcapng.EachMark(in, min(size, pcapng.MaxHeadLen), func(pcapng.Batch) bool { ours = true; return false })
	if err != nil {
		return err
	}
	if err := exportCapture(x, name); !ours {
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w", errHeadless, err)
	}
	return errHeadless
}

// isPipe reports whether a name refers to a pipe.
func isPipe(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}

// leastCapture is the length of a capture without packets, in bytes.
const leastCapture = 24

// exportCapture exports a capture of another program, compressed or not.
func exportCapture(x *export.Exporter, name string) error {
	in, err := capinput.Open(context.Background(), name)
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size < leastCapture {
		return fmt.Errorf("it is no capture: it has %d bytes", size)
	}
	err = x.AddCapture(in, size)
	if damage, is := errors.AsType[*capfile.Error](err); is && damage.Offset > 0 {
		err = fmt.Errorf("%w; of its %d bytes the last %d are not exported", err, size, size-damage.Offset)
	}
	switch {
	case in.Cut == nil:
		return err
	case err == nil:
		return fmt.Errorf("%w: %w", capfile.ErrCut, in.Cut)
	}
	return fmt.Errorf("%w (%w)", err, in.Cut)
}

// tellExport prints what was exported and what was not.
func tellExport(w io.Writer, s export.Summary) {
	fmt.Fprintf(w, "%d packets exported, %d bytes; %d packets in %s and %s were looked at\n",
		s.Packets, s.Bytes, s.Seen, plural(int(s.Segments), "segment"), batches(s.Batches))
	if s.Packets > 0 {
		fmt.Fprintf(w, "from %s to %s\n", stamp(s.First), stamp(s.Last))
	}
	if s.Late > 0 {
		fmt.Fprintf(w, "%d packets come after later ones: the clock was set back, or they were too far apart to be sorted\n", s.Late)
	}
	if s.Outside > 0 {
		fmt.Fprintf(w, "not read: %s before or after the times\n", plural(int(s.Outside), "segment"))
	}
	if s.Indexed > 0 {
		fmt.Fprintf(w, "by the index of %s: %s passed over\n", plural(int(s.Indexed), "segment"), batches(s.PassedOver))
	}
	if s.BadIndexes > 0 {
		fmt.Fprintf(w, "read whole, with an index that is not used: %s, first %v (make it again: unifiedd index)\n", plural(int(s.BadIndexes), "segment"), s.WhyBad)
	}
	if s.Skipped > 0 || s.Overwritten > 0 {
		fmt.Fprintf(w, "skipped: %s incomplete (being written, or lost), %s overwritten during the export\n",
			batches(s.Skipped), plural(int(s.Overwritten), "segment"))
	}
}

func batches(n uint64) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}

func stamp(ns uint64) string {
	return time.Unix(int64(ns/1e9), int64(ns%1e9)).Format(time.RFC3339Nano) // from 2262 on int64 does not hold the nanoseconds
}
