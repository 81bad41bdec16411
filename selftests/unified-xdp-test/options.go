package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// options are the options of a command line.
type options struct {
	iface      string
	mode       mode
	queues     numbers // empty: all
	cpus       numbers // of the workers, used in rotation; empty: the kernel chooses
	ring       uint
	frame      uint // bytes
	policy     policy
	multi      bool
	alwaysWake bool
	generic    bool
	busyPoll   time.Duration
	filter     string
	expr       *filter.Expr
	duration   time.Duration // zero: until the count or a signal
	count      uint64        // packets; zero: no limit
	size       uint          // bytes of a packet that is sent
	rate       float64       // packets per second; zero: as fast as possible
	to         address
	wait       string
	sleep      time.Duration
	json       bool
	takeOver   bool
	reserve    bool
	pages      harness.Pages
}

const usage = `Usage: unified-xdp-test [-rx | -tx | -echo | -ping] [OPTIONS] IFACE

Without a mode a short self-test runs, which takes nothing from the host but packets
of its own.

`

// parse reads the command line. It returns mistakes as errors.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{ring: 4096, frame: 4096, size: 64, sleep: 200 * time.Microsecond, to: address{2, 0, 0, 0, 0, 2}}
	var modes map[mode]*bool
	fs, err := harness.Parse("unified-xdp-test", usage, args, stderr, func(fs *flag.FlagSet) { modes = o.define(fs) })
	if err != nil {
		return o, err
	}
	if fs.NArg() != 1 {
		return o, fmt.Errorf("name one interface, after the options: got %q (--help lists the options)", fs.Args())
	}
	o.iface = fs.Arg(0)
	if o.mode, err = choose(modes); err != nil {
		return o, err
	}
	if err := o.check(); err != nil {
		return o, err
	}
	return o, o.suit(fs)
}

// define defines the options. After parsing, the result says which modes the user selected.
func (o *options) define(fs *flag.FlagSet) map[mode]*bool {
	modes := map[mode]*bool{
		rx:   fs.Bool("rx", false, "receive packets and supply their frames again"),
		tx:   fs.Bool("tx", false, "send packets"),
		echo: fs.Bool("echo", false, "send back what arrives, with the MAC addresses swapped"),
		ping: fs.Bool("ping", false, "measure the way to an -echo and back"),
	}
	fs.Var(&o.queues, "queues", "receive queues to use, such as `0,2-3` (default all)")
	fs.Var(&o.cpus, "cpus", "processors for the workers, in turn, such as `0,2-3` (default any)")
	fs.UintVar(&o.ring, "ring", o.ring, "`ENTRIES` of each ring, a power of two")
	fs.UintVar(&o.frame, "frame", o.frame, "`BYTES` of a frame, 2048 or 4096")
	fs.Var(&o.policy, "zero-copy", "`POLICY`: require, prefer or copy")
	fs.BoolVar(&o.multi, "multi-buffer", false, "take packets of several frames too, where the kernel can")
	fs.BoolVar(&o.alwaysWake, "always-wake", false, "do without the kernel's need-wakeup flag")
	fs.BoolVar(&o.generic, "generic", false, "run the XDP program in generic mode instead of in the driver")
	fs.DurationVar(&o.busyPoll, "busy-poll", 0, "let each system call poll the driver for so `LONG` (0: off)")
	fs.StringVar(&o.filter, "filter", "", "tcpdump `EXPRESSION` of packets to take from the host (default all; with -ping its own)")
	fs.DurationVar(&o.duration, "duration", 0, "how `LONG` to go on (0: until -count or Ctrl-C)")
	fs.Uint64Var(&o.count, "count", 0, "end after so many `PACKETS` (0: no limit)")
	fs.UintVar(&o.size, "size", o.size, "`BYTES` of a packet that is sent, from the MAC addresses on, without checksum")
	fs.Float64Var(&o.rate, "rate", 0, "`PACKETS` per second to send, all queues together (0: as fast as it goes)")
	fs.Var(&o.to, "to", "`MAC` address to send to; the default is nobody's on a real network")
	harness.OneOf(fs, &o.wait, "wait", "`HOW` to wait when there is nothing to do: spin, sleep or poll (default sleep; with -echo and -ping poll)", waitSpin, waitSleep, waitPoll)
	fs.DurationVar(&o.sleep, "sleep", o.sleep, "how `LONG` -wait sleep sleeps")
	fs.BoolVar(&o.json, "json", false, "print JSON")
	fs.BoolVar(&o.takeOver, "take-over", false, "take everything though the interface carries the default route")
	fs.BoolVar(&o.reserve, "reserve", false, harness.ReserveHelp)
	fs.Var(&o.pages, "pages", harness.PagesHelp)
	return modes
}

// check refuses wrong options.
func (o *options) check() (err error) {
	switch {
	case o.frame != 2048 && o.frame != 4096:
		return fmt.Errorf("-frame %d: it must be 2048 or 4096", o.frame)
	case o.ring > 1<<17:
		return fmt.Errorf("-ring %d: it must be a power of two from 4 to 131072", o.ring)
	}
	if err := cmp.Or(harness.Within("size", o.size, minSize, o.frame), harness.Within("rate", o.rate, 0, 1e9), harness.Within("duration", o.duration, 0, 1<<62),
		harness.Within("sleep", o.sleep, 1, time.Second), harness.Within("busy-poll", o.busyPoll, 0, time.Second)); err != nil {
		return err
	}
	slices.Sort(o.queues)
	if o.filter == "" && o.mode.ownPackets() {
		o.filter = ownFilter
	}
	if o.filter == "" {
		return nil
	}
	if o.expr, err = filter.Parse(o.filter); err != nil {
		return fmt.Errorf("-filter: %w", err)
	}
	return nil
}

// suits lists the modes of each option that only some modes have.
var suits = map[string][]mode{
	"filter": {rx, echo, ping}, "take-over": {rx, echo},
	"size": {tx, ping, selfTest}, "to": {tx, ping, selfTest}, "rate": {tx, ping},
	"duration": {rx, tx, echo, ping}, "count": {rx, tx, echo, ping}, "sleep": {rx, tx, echo, ping},
	"wait": {rx, tx, echo, ping}, "cpus": {rx, tx, echo, ping},
}

// suit refuses options without an effect, and sets -wait to the default of the mode.
func (o *options) suit(fs *pflag.FlagSet) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		if modes := suits[f.Name]; modes != nil && !o.mode.in(modes) {
			err = fmt.Errorf("-%s does nothing %s", f.Name, o.mode.with())
		}
	})
	if o.mode == selfTest && !fs.Changed("ring") {
		o.ring = 256 // it needs no more memory
	}
	if o.wait == "" {
		o.wait = waitSleep
		if o.mode == echo || o.mode == ping {
			o.wait = waitPoll
		}
	}
	return err
}

// config is the configuration for xdp.Open.
func (o *options) config() xdp.Config {
	c := xdp.Config{
		Interface: o.iface, Queues: o.queues, Direction: o.mode.direction(), Policy: xdp.Policy(o.policy),
		Shape: umem.Shape{MultiBuffer: o.multi}, RingSize: uint32(o.ring), AlwaysWake: o.alwaysWake,
		BusyPoll: xdp.BusyPoll{Time: o.busyPoll}, Filter: o.expr, Unstamped: true,
	}
	if o.generic {
		c.Mode = generic
	}
	return c
}

// address is a MAC address.
type address [6]byte

func (a *address) String() string { return a.text() }

func (a address) text() string { return net.HardwareAddr(a[:]).String() }

func (a *address) Set(text string) error {
	m, err := net.ParseMAC(text)
	if err != nil || len(m) != len(a) {
		return errors.New("want a MAC address such as 02:00:00:00:00:02")
	}
	copy(a[:], m)
	return nil
}

// policy is the option for xdp.Policy.
type policy xdp.Policy

func (p *policy) String() string { return xdp.Policy(*p).String() }

func (p *policy) Set(text string) error {
	v, err := xdp.ParsePolicy(text)
	*p = policy(v)
	return err
}
