package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

// options are the options of a command line.
type options struct {
	target   string
	rw       string // empty: the self-test
	block    size
	depth    int
	batch    int  // operations to submit at once
	least    int  // operations to wait for at once
	runtime  span // zero: until size bytes were moved
	size     size // of the range used, from the start of the target; zero: all of it
	mix      int  // percent of reads of randrw
	verify   bool
	gather   bool
	buffered bool
	force    bool
	reserve  bool
	json     bool
	latency  bool
	pages    harness.Pages
	seed     uint64
}

var modes = []string{"read", "write", "randread", "randwrite", "randrw"}

// newSize is the size in bytes of a new file, unless the user sets another.
const newSize = 256 << 20

const usage = `Usage: unified-nvme-test [OPTIONS] TARGET

TARGET is a block device, the NVMe node of a disk (/dev/ngXnY), which takes commands
past the kernel's block layer, a file, a file to be made, or a directory, in which a
file is made and removed again. Without -rw a short self-test runs on it. What is on the
target is not written over unless -force is given; behind a node that is the disk.

`

// parse reads the command line. It returns mistakes as errors.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{block: 4096, depth: 1, batch: 4, least: 1, seed: 1, mix: 50, latency: true}
	fs, err := harness.Parse("unified-nvme-test", usage, args, stderr, o.define)
	if err != nil {
		return o, err
	}
	if fs.NArg() != 1 {
		return o, fmt.Errorf("name one target, after the options: got %q (--help lists the options)", fs.Args())
	}
	o.target = fs.Arg(0)
	return o, o.check(harness.Given(fs))
}

func (o *options) define(fs *flag.FlagSet) {
	harness.OneOf(fs, &o.rw, "rw", "what to do: `MODE` is "+strings.Join(modes, ", ")+"; none: the self-test", modes...)
	fs.Var(&o.block, "bs", "`BYTES` of each operation; k, m and g are powers of 1024")
	fs.IntVar(&o.depth, "iodepth", o.depth, "`OPERATIONS` at a time, 1 to 4096")
	fs.IntVar(&o.batch, "iodepth_batch", o.batch, "hand over so many `OPERATIONS` at once: fewer keep the disk's queue fuller, more cost less processor time")
	fs.IntVar(&o.least, "iodepth_batch_complete_min", o.least, "sleep until so many `OPERATIONS` have completed: more throughput for less processor time, and more latency")
	fs.Var(&o.runtime, "runtime", "how `LONG` to go on, in seconds or as 2m30s; 0: until all of the size was moved once (default 5s, with -verify 0)")
	fs.Var(&o.size, "size", "`BYTES` of the target to use; of a new file, 256m if not given")
	fs.IntVar(&o.mix, "rwmixread", o.mix, "`PERCENT` of reads of randrw")
	fs.BoolVar(&o.verify, "verify", false, "write blocks that say where and when they were written; read them back and check every byte")
	fs.BoolVar(&o.gather, "gather", false, "make each operation of single frames, gathered and scattered by the kernel, instead of an extent")
	fs.BoolVar(&o.buffered, "buffered", false, "where there is no direct I/O let the kernel copy, instead of refusing")
	fs.BoolVar(&o.force, "force", false, "write over what is on the target, also on a device in use")
	fs.BoolVar(&o.reserve, "reserve", false, harness.ReserveHelp)
	fs.Var(&o.pages, "pages", harness.PagesHelp)
	fs.BoolVar(&o.json, "json", false, "print JSON")
	fs.BoolVar(&o.latency, "latency", o.latency, "measure latency, at the price of reading the clock once a batch")
	fs.Uint64Var(&o.seed, "seed", o.seed, "`NUMBER` that random places and contents follow from")
}

// check checks the options against each other and sets those that depend on others.
func (o *options) check(given map[string]bool) error {
	if o.rw == "" {
		return o.checkSelfTest(given)
	}
	if err := cmp.Or(harness.Within("iodepth", o.depth, 1, 4096), harness.Within("iodepth_batch", o.batch, 1, 4096),
		harness.Within("iodepth_batch_complete_min", o.least, 1, o.depth), harness.Within("rwmixread", o.mix, 0, 100)); err != nil {
		return err
	}
	switch {
	case o.block < 512 || o.block > 1<<30 || o.block%512 != 0:
		return fmt.Errorf("-bs %d: it must be a multiple of 512 bytes, up to 1g", o.block)
	case o.gather && (o.block%frameSize != 0 || o.block/frameSize > 1024):
		return fmt.Errorf("-gather with -bs %d: it must be a multiple of %d, up to 4m", o.block, frameSize)
	case o.verify && o.rw == "randrw":
		return errors.New("-verify with -rw randrw: write with randwrite, which reads back, or read with randread what was written with -verify")
	case o.verify && o.writes() && o.runtime > 0:
		return errors.New("-verify of writes goes over the size once: leave -runtime out, and set -size")
	}
	if !given["runtime"] && !o.verify {
		o.runtime = span(5 * time.Second)
	}
	return nil
}

// checkSelfTest refuses options without an effect.
func (o *options) checkSelfTest(given map[string]bool) error {
	for name := range given {
		if !slices.Contains([]string{"buffered", "force", "reserve", "pages", "json", "seed"}, name) {
			return fmt.Errorf("-%s needs -rw: without it the self-test runs", name)
		}
	}
	return nil
}

// writes reports whether the program writes to the target.
func (o *options) writes() bool {
	return o.rw == "" || o.rw == "randrw" || strings.HasSuffix(o.rw, "write")
}

// random reports whether places are random.
func (o *options) random() bool { return strings.HasPrefix(o.rw, "rand") }

// size is a number of bytes, written with k, m, g or t.
type size uint64

func (s *size) String() string { return bytesText(uint64(*s)) }

func (s *size) Set(text string) error {
	number := strings.ToLower(text)
	number = strings.TrimSuffix(strings.TrimSuffix(number, "b"), "i")
	shift := 0
	if n := len(number); n > 0 {
		if i := strings.IndexByte("kmgt", number[n-1]); i >= 0 {
			shift, number = 10*(i+1), number[:n-1]
		}
	}
	v, err := strconv.ParseUint(number, 10, 64)
	if err != nil || v > 1<<62>>shift {
		return errors.New("want bytes such as 4096, 4k or 1g")
	}
	*s = size(v << shift)
	return nil
}

// bytesText returns a number of bytes in the form that the options accept, in the largest exact
// unit.
func bytesText(v uint64) string {
	for i, unit := range []string{"t", "g", "m", "k"} {
		if shift := 10 * (4 - i); v > 0 && v%(1<<shift) == 0 {
			return strconv.FormatUint(v>>shift, 10) + unit
		}
	}
	return strconv.FormatUint(v, 10)
}

// span is a duration, which may also be a number of seconds.
type span time.Duration

func (s *span) String() string { return time.Duration(*s).String() }

func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil || d < 0 {
		return errors.New("want seconds such as 5 or 0.5, or 2m30s")
	}
	*s = span(d)
	return nil
}
