package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// options are the options of a command line.
type options struct {
	command  command
	ticks    addresses // of lines: where the exchange sends to, or where the trader receives
	orders   addresses // one: where the exchange listens, or where the trader connects to
	iface    string
	count    uint64
	warm     uint64
	rate     float64
	burst    uint64
	loss     float64 // per cent
	seed     uint64
	size     uint64
	session  string // of MoldUDP64; empty: the payload of a packet is a tick
	mold     bool
	protocol string
	wait     string
	stamps   string
	echo     bool
	socket   string // of a daemon
	as       string // name of the trader as a program of the daemon
	flow     string // that gives the trader ticks; empty: it has sockets of the kernel
	send     string // flow that sends its orders; empty: it connects to the exchange itself
	cpu      int
	after    time.Duration
	window   uint64 // bytes of the receive buffer; 0: the kernel's default
	every    uint64 // orders after which the exchange does not read for stall; 0: never
	stall    time.Duration
	end      uint64 // orders after which the exchange ends the connection; 0: when all are there
	timeout  time.Duration
	json     bool
}

// command is one of the program's commands.
type command struct {
	harness.Command
	define func(*flag.FlagSet, *options)
	check  func(*options, map[string]bool) error
	work   func(ctx context.Context, o options, stdout, stderr io.Writer) error
}

var commands = []command{
	{harness.Command{Name: "exchange", Does: "send ticks, receive orders, and measure the time between them"}, defineExchange, (*options).checkExchange, trade},
	{harness.Command{Name: "trader", Does: "answer each tick with an order, over sockets of the kernel"}, defineTrader, (*options).checkTrader, answer},
}

// Words of options.
const (
	plain, ouchProtocol = "plain", "ouch"
	spin, sleep         = "spin", "sleep"
	kernel, own         = "kernel", "own"
)

const usage = "usage: unified-tick-test COMMAND [options] (--help behind a command lists its options)\n\n"

// parse reads the command line. It returns mistakes as errors.
func parse(args []string, stderr io.Writer) (o options, err error) {
	n, err := harness.Choose(usage, []harness.Command{commands[0].Command, commands[1].Command}, args, stderr)
	if err != nil {
		return o, err
	}
	o = options{command: commands[n], protocol: plain, wait: spin, stamps: kernel}
	given, err := o.command.Parse("unified-tick-test", args[1:], stderr, o.define)
	if err != nil {
		return o, err
	}
	return o, cmp.Or(o.command.check(&o, given), o.check())
}

// define defines the options of the command.
func (o *options) define(fs *flag.FlagSet) {
	fs.StringVar(&o.iface, "interface", "", "`NAME` of the interface for ticks that are multicast (default: the kernel chooses)")
	harness.OneOf(fs, &o.protocol, "protocol", "`WHAT` orders are: plain, or ouch for OUCH 4.2 in SoupBinTCP", plain, ouchProtocol)
	harness.OneOf(fs, &o.wait, "wait", "`HOW` to wait: spin, or sleep in the kernel", spin, sleep)
	fs.IntVar(&o.cpu, "cpu", -1, "`NUMBER` of the processor to run on; -1: any")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Second, "how `LONG` to wait for the other end at first")
	fs.BoolVar(&o.json, "json", false, "print the result as JSON")
	o.command.define(fs, o)
}

func defineExchange(fs *flag.FlagSet, o *options) {
	fs.Var(&o.ticks, "to", "`ADDRESS:PORT` that ticks are sent to, or several with commas: each tick goes to all of these lines")
	fs.Var(&o.orders, "listen", "`ADDRESS:PORT` that the trader connects to; an address may be left out")
	fs.BoolVar(&o.echo, "echo", false, "orders come back by UDP to where ticks come from, as from tick-echo, and there is no connection")
	fs.Uint64Var(&o.count, "count", 10000, "ticks that are measured")
	fs.Uint64Var(&o.warm, "warm", 1000, "ticks in front of them that are not measured")
	fs.Float64Var(&o.rate, "rate", 0, "`TICKS` per second; 0: the next one when the order for the last one is there")
	fs.Uint64Var(&o.burst, "burst", 1, "`TICKS` that are sent one behind the other at a time")
	fs.Float64Var(&o.loss, "loss", 0, "`PER CENT` of ticks that each line leaves out; they follow from the seed")
	fs.Uint64Var(&o.seed, "seed", 1, "what ticks and losses follow from")
	fs.Uint64Var(&o.size, "size", tickLen, "`BYTES` of a tick; those behind its first 32 follow from the seed")
	fs.StringVar(&o.session, "mold", "", "`SESSION` of MoldUDP64, up to ten characters: ticks are its messages (default: a tick is a packet)")
	harness.OneOf(fs, &o.stamps, "stamps", "`WHOSE` clock to measure by: kernel, or own, which spares the kernel's stamps", kernel, own)
	fs.Uint64Var(&o.window, "window", 0, "`BYTES` of the receive buffer for orders, which bounds TCP's window (default: the kernel chooses)")
	fs.DurationVar(&o.stall, "stall", 100*time.Millisecond, "how `LONG` not to read orders, each time after -stall-every")
	fs.Uint64Var(&o.every, "stall-every", 0, "`ORDERS` after which no order is read for a while (default: never)")
	fs.Uint64Var(&o.end, "end-after", 0, "`ORDERS` after which the exchange ends the connection, while ticks may not be answered (default: at the end)")
	fs.DurationVar(&o.after, "after", 100*time.Millisecond, "how `LONG` after the trader is there the first tick goes")
}

func defineTrader(fs *flag.FlagSet, o *options) {
	fs.Var(&o.ticks, "from", "`ADDRESS:PORT` that ticks are sent to, or several with commas; an address may be left out")
	fs.Var(&o.orders, "to", "`ADDRESS:PORT` of the exchange")
	fs.BoolVar(&o.mold, "mold", false, "ticks are messages of MoldUDP64")
	fs.StringVar(&o.flow, "flow", "", "`NAME` of a daemon's flow that gives ticks as messages of a feed, instead of -from")
	fs.StringVar(&o.send, "send", "", "`NAME` of a daemon's flow that sends orders to the exchange, instead of -to; it needs to.order.replies")
	fs.StringVar(&o.as, "as", "trader", "with -flow or -send: `NAME` of this program in the daemon's configuration")
	fs.StringVar(&o.socket, "socket", attached.DefaultSocket, "with -flow or -send: `PATH` of the socket where programs attach")
}

// Limits of options.
const (
	mostTicks = 10_000_000
	mostBurst = 10_000
	mostRate  = 1e7
	mostLines = 8
	mostSize  = 1400 // a packet of MoldUDP64 then fits an MTU of 1500

	mostStall  = 30 * time.Second
	mostWindow = 1 << 30
)

// check refuses wrong options of both commands.
func (o *options) check() error {
	switch {
	case len(o.ticks) > mostLines:
		return fmt.Errorf("%d lines are too many; at most %d are possible", len(o.ticks), mostLines)
	case len(o.orders) > 1:
		return errors.New("one address is possible for orders")
	}
	return cmp.Or(harness.Within("cpu", o.cpu, -1, 1023), harness.Within("timeout", o.timeout, 1, 1<<62))
}

func (o *options) checkTrader(map[string]bool) error {
	switch {
	case (o.flow == "") == (len(o.ticks) == 0), o.flow != "" && o.mold:
		return errors.New("the trader needs either -from, or -flow without -mold (--help lists the options)")
	case (o.send == "") == (len(o.orders) == 0):
		return errors.New("the trader needs either -to or -send (--help lists the options)")
	}
	return nil
}

func (o *options) checkExchange(given map[string]bool) error {
	switch {
	case !given["to"]:
		return errors.New("exchange needs -to (--help lists the options)")
	case o.echo && (len(o.ticks) != 1 || len(o.orders) != 0 || o.session != "" || o.protocol != plain):
		return errors.New("-echo is for one line of plain ticks, without -listen, -mold and -protocol ouch")
	case o.echo && (o.window > 0 || o.every > 0 || o.end > 0):
		return errors.New("-window, -stall-every and -end-after are about a connection, and -echo has none")
	case len(o.orders) == 0 && !o.echo:
		return errors.New("exchange needs -listen, or -echo (--help lists the options)")
	case len(o.session) > 10:
		return fmt.Errorf("-mold %s: a session has at most ten characters", o.session)
	}
	return cmp.Or(harness.Within("count", o.count, 1, mostTicks), harness.Within("warm", o.warm, 0, mostTicks), harness.Within("burst", o.burst, 1, mostBurst),
		harness.Within("rate", o.rate, 0, mostRate), harness.Within("loss", o.loss, 0, 90), harness.Within("size", o.size, tickLen, mostSize),
		harness.Within("after", o.after, 0, 1<<62), harness.Within("stall", o.stall, 0, mostStall), harness.Within("window", o.window, 0, mostWindow))
}

// addresses is a list of addresses with ports. An address that is left out is that of all of the host, of IPv4.
type addresses []netip.AddrPort

func (a *addresses) String() string {
	var all []string
	for _, one := range *a {
		all = append(all, one.String())
	}
	return strings.Join(all, ",")
}

func (a *addresses) Set(text string) error {
	*a = nil
	for one := range strings.SplitSeq(text, ",") {
		if strings.HasPrefix(one, ":") {
			one = "0.0.0.0" + one
		}
		at, err := netip.ParseAddrPort(one)
		if err != nil || at.Port() == 0 {
			return fmt.Errorf("%q is not an address with a port, such as 10.0.0.1:5000 or [fd00::1]:5000", one)
		}
		*a = append(*a, at)
	}
	return nil
}
