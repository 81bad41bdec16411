package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
)

// options are the options of a command line.
type options struct {
	command  command
	device   string
	address  string
	flow     string
	paths    string // further ways of append
	active   bool   // all of them at the same time
	peer     string // names of daemon and flow, or state, instead of address and flow
	etcd     string // that finds them
	file     string
	size     uint64
	count    uint64
	depth    int
	sample   uint64
	seed     uint64
	rate     uint64
	memory   uint64
	queue    int
	ordinary bool
	reserve  bool
	spin     bool
	extents  uint64
	within   uint64
	packets  bool
	method   string
	first    uint64 // participant
	tls      string
	history  string
	timeout  time.Duration
	idle     time.Duration
	clients  int
	warm     time.Duration
	span     time.Duration
	gaps     time.Duration
	gap      time.Duration
	json     bool
	socket   string // of the daemon, for programs that attach
	as       string // name of the program
	writes   string // channels
	reads    string
	echo     bool
	objects  uint64 // of a state
	keys     uint64
}

// command is one of the program's commands.
type command struct {
	harness.Command
	define  func(*flag.FlagSet, *options)
	needs   []string // options that must be given
	least   uint64   // of -size
	work    func(context.Context, *client.Client, options) (result, error)
	offline bool // uses no device
}

var commands = []command{
	{harness.Command{Name: "append", Does: "send messages to a log or a relay, until all are acknowledged"}, defineAppend, []string{"to"}, 0, appendAll, false},
	{harness.Command{Name: "load", Does: "have many clients of a log or a relay keep messages in flight for a while"}, defineLoad, []string{"to"}, numberLen, loadAll, false},
	{harness.Command{Name: "receive", Does: "take and verify the messages of a flow"}, defineReceive, []string{"listen"}, 0, receiveAll, false},
	{harness.Command{Name: "read", Does: "read blocks of what make made from a flow, at random, and verify them"}, defineRead, []string{"from"}, blockSize, readAll, false},
	{harness.Command{Name: "log", Does: "read a log on disk and verify what append has sent there"}, defineFound, []string{"file"}, 0, checkLog, true},
	{harness.Command{Name: "packets", Does: "read a capture and verify what send has sent"}, defineFound, []string{"file"}, 0, checkPackets, true},
	{harness.Command{Name: "send", Does: "send datagrams through the kernel, for a flow that takes packets"}, defineSend, []string{"to"}, numberLen, sendAll, true},
	{harness.Command{Name: "submit", Does: "send messages as an attached program, until all are done"}, defineSubmit, []string{"as", "flow"}, stampLen, asProgram(submit), true},
	{harness.Command{Name: "take", Does: "take packets or messages as an attached program"}, defineTake, []string{"as", "flow"}, 0, asProgram(take), true},
	{harness.Command{Name: "channel", Does: "write or read channels between programs, and measure them"}, defineChannel, []string{"as"}, stampLen, asProgram(channel), true},
	{harness.Command{Name: "state", Does: "update or read a state as an attached program, and measure it"}, defineState, []string{"as"}, stampLen, asProgram(state), true},
	{harness.Command{Name: "get", Does: "read a state over RDMA, and measure it"}, defineGet, []string{"from", "reads"}, 0, get, false},
	{harness.Command{Name: "make", Does: "make a file of blocks that read can verify"}, defineMake, []string{"file"}, blockSize, makeFile, true},
}

var errTimeout = errors.New("it took too long: raise -timeout, or look at `unifiedd status`")

const usage = `usage: unified-flow-test COMMAND [options] [+ COMMAND [options]]...

Commands that are joined by + run at the same time, over one device: the first one's.

`

// parse reads the command line: one command, or several.
func parse(args []string, stderr io.Writer) (all []options, err error) {
	for more := true; more; {
		var one []string
		one, args, more = cut(args)
		o, err := parseOne(one, stderr, deviceOf(all))
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// cut returns the words of the first command, and reports whether another command must follow.
func cut(args []string) (first, rest []string, more bool) {
	if n := slices.Index(args, "+"); n >= 0 {
		return args[:n], args[n+1:], true
	}
	return args, nil, false
}

// deviceOf returns the first device that commands name.
func deviceOf(all []options) string {
	for _, o := range all {
		if o.device != "" {
			return o.device
		}
	}
	return ""
}

// parseOne reads one command. device is the device of an earlier command: all commands share it.
func parseOne(args []string, stderr io.Writer, device string) (o options, err error) {
	var all []harness.Command
	for _, c := range commands {
		all = append(all, c.Command)
	}
	n, err := harness.Choose(usage, all, args, stderr)
	if err != nil {
		return o, err
	}
	o.command = commands[n]
	given, err := o.command.Parse("unified-flow-test", args[1:], stderr, o.define)
	if err != nil {
		return o, err
	}
	return o, o.check(given, device)
}

// define defines the options of the command.
func (o *options) define(fs *flag.FlagSet) {
	fs.Uint64Var(&o.seed, "seed", 1, "what the messages follow from, with their numbers")
	fs.DurationVar(&o.timeout, "timeout", time.Minute, "how long all of it may take")
	fs.BoolVar(&o.json, "json", false, "print the result as JSON")
	if !o.command.offline {
		fs.StringVar(&o.device, "device", "", "RDMA `device`: roce:IFACE, or one of libibverbs. What is about it is for the first command alone")
		fs.Uint64Var(&o.memory, "memory", 64<<20, "`bytes` of the region")
		fs.IntVar(&o.queue, "receive-ring", 2048, "`frames` in each receive ring of a device roce:IFACE")
		fs.Uint64Var(&o.extents, "extents", 0, "pieces of 1 MiB in the region, for messages and requests longer than 4096 bytes")
		fs.BoolVar(&o.ordinary, "ordinary", false, "a region without huge pages")
		fs.BoolVar(&o.reserve, "reserve", false, harness.ReserveHelp)
		fs.BoolVar(&o.spin, "spin", false, "never sleep")
		fs.StringVar(&o.tls, "tls", "", "`CERTIFICATE,KEY,AUTHORITY` files: TLS for the connection")
	}
	o.command.define(fs, o)
}

// definePeer defines the options of a flow that is found by its name.
func definePeer(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.peer, "peer", "", "instead of an address and -flow, `NAME/FLOW`: names of the daemon and of its flow, or of all members of a group, with commas. It takes -etcd")
	defineEtcd(fs, o)
}

func defineEtcd(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.etcd, "etcd", "", "`URL` of etcd, where daemons register, or several, with commas. https takes the files of -tls")
}

func defineAppend(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.address, "to", "", "`host:port` of the flow, or of all members of a group, with commas")
	fs.StringVar(&o.flow, "flow", "", "the flow's `name`; whatever is served there without")
	definePeer(fs, o)
	fs.StringVar(&o.paths, "paths", "", "further ways to the flow, `DEVICE=HOST:PORT`, with commas: taken when -device and -to fail. Of a group DEVICE=A,B,C, with the members as in -to")
	fs.BoolVar(&o.active, "active", false, "use all -paths at the same time")
	fs.Uint64Var(&o.size, "size", 1024, "`bytes` of a message")
	fs.Uint64Var(&o.count, "count", 10000, "messages")
	fs.IntVar(&o.depth, "depth", 64, "messages that are sent and not acknowledged")
	fs.Uint64Var(&o.rate, "rate", 0, "messages per second; 0: as fast as it goes")
	o.method = "any"
	harness.OneOf(fs, &o.method, "method", "how messages go: `send`, write, or any, as the flow takes them", "send", "write", "any")
	fs.DurationVar(&o.gaps, "gaps", 0, "say at once when nothing was acknowledged for this long; 0: say only the longest gap, at the end")
	fs.StringVar(&o.history, "history", "", "`file` to make, in which each message's times of sending and of acknowledgement are noted")
	fs.Uint64Var(&o.first, "participant", 0, "`number` of this client, to a flow that adds up the messages of several: from 1 on; 0: not said")
	fs.Uint64Var(&o.keys, "keys", 0, "the flow updates a state: each message writes one of this `number` of keys, in turn, with -size bytes, 16 at least; 0: it does not")
}

// participant returns the number of a client.
func (o *options) participant(client int) uint32 {
	if o.first == 0 {
		return 0
	}
	return uint32(o.first) + uint32(client)
}

func defineLoad(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.address, "to", "", "`host:port` of the flow, or of all members of a group, with commas")
	fs.StringVar(&o.flow, "flow", "", "the flow's `name`; whatever is served there without")
	definePeer(fs, o)
	fs.IntVar(&o.clients, "clients", 1, "`number` of clients, each with a queue pair of its own")
	fs.Uint64Var(&o.size, "size", 1024, "`bytes` of a message, 8 at least")
	fs.Uint64Var(&o.first, "participant", 0, "`number` of the first client, to a flow that adds up the messages of all; each further client has the next one; 0: not said")
	fs.IntVar(&o.depth, "depth", 1, "messages that each client has sent and are not acknowledged")
	fs.DurationVar(&o.warm, "warm", 200*time.Millisecond, "how long nothing is counted at first")
	fs.DurationVar(&o.span, "for", time.Second, "how long messages are counted then")
	fs.Uint64Var(&o.rate, "rate", 0, "messages per second of each client; 0: as fast as it goes")
	fs.DurationVar(&o.gap, "gap", 0, "print each longer time between two acknowledgements of a client on standard error: gap BEGIN LENGTH, in nanoseconds, BEGIN since 1970; 0: do not")
}

func defineReceive(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.address, "listen", "", "`host:port` that flows connect to")
	fs.StringVar(&o.flow, "flow", "", "the `name` flows may ask for")
	fs.Uint64Var(&o.count, "count", 0, "messages; 0: until interrupted")
	fs.IntVar(&o.depth, "depth", 64, "messages of each sender that may be in flight")
	fs.DurationVar(&o.idle, "idle", 0, "end when nothing has come for so long, since the first message; 0: do not")
	o.method = "send"
	harness.OneOf(fs, &o.method, "method", "how messages come: `send`, or write, into memory that is granted", "send", "write")
	fs.BoolVar(&o.packets, "packets", false, "messages are packets that send sent: verify what they carry")
}

func defineRead(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.address, "from", "", "`host:port` of the flow")
	fs.StringVar(&o.flow, "flow", "", "the flow's `name`; whatever is served there without")
	definePeer(fs, o)
	fs.Uint64Var(&o.size, "size", blockSize, "`bytes` of a request, a multiple of 4096")
	fs.Uint64Var(&o.count, "count", 10000, "requests")
	fs.IntVar(&o.depth, "depth", 32, "requests at once")
	fs.Uint64Var(&o.within, "within", 0, "read only from the first so many `bytes`; 0: from all that is served")
	fs.DurationVar(&o.span, "for", 0, "go on for so long, whatever -count says; 0: do not")
	fs.Uint64Var(&o.sample, "verify", 1, "verify one in so many requests")
}

func defineFound(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.file, "file", "", "what the names of the files begin with")
	fs.Uint64Var(&o.count, "count", 0, "how many there must be; 0: any number")
}

func defineSend(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.address, "to", "", "`host:port` that the datagrams are for")
	fs.Uint64Var(&o.size, "size", 1024, "`bytes` of a datagram's payload")
	fs.Uint64Var(&o.count, "count", 10000, "datagrams")
	fs.Uint64Var(&o.rate, "rate", 0, "datagrams per second; 0: as fast as it goes")
}

func defineMake(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.file, "file", "", "`path` of the file")
	fs.Uint64Var(&o.size, "size", 64<<20, "`bytes`, a multiple of 4096")
}

// Limits of options.
const (
	mostDepth   = 1 << 14
	mostClients = 1 << 10
	mostMessage = 1 << 20
)

// check refuses wrong options.
func (o *options) check(given map[string]bool, device string) error {
	name := o.command.Name
	for _, need := range o.command.needs {
		if !given[need] && (o.peer == "" || need != "to" && need != "from" && need != "reads") {
			return fmt.Errorf("%s needs -%s (--help lists the options)", name, need)
		}
	}
	if err := o.checkSize(); err != nil {
		return err
	}
	switch {
	case o.peer != "" && (o.address != "" || o.flow != ""):
		return errors.New("-peer says where the flow is: leave out the address and -flow")
	case o.peer != "" && o.reads != "":
		return errors.New("-peer says which state that is: leave out -reads")
	case (o.peer != "") != (o.etcd != ""):
		return errors.New("-peer and -etcd go together: one names a flow or a state, the other says where names lead")
	case !o.command.offline && o.device == "" && device == "":
		return fmt.Errorf("%s needs -device (--help lists the options)", name)
	case o.device != "" && device != "":
		return fmt.Errorf("-device %s: the commands share a device, which is %s", o.device, device)
	case name == "channel" && o.writes == "" && o.reads == "":
		return errors.New("channel needs -writes or -reads (--help lists the options)")
	case (name == "state" || name == "get") && o.keys == 0 && o.objects == 0:
		return errors.New("-objects 0: it must be 1 or more, or say -keys")
	case o.echo && (o.writes == "" || o.reads == ""):
		return errors.New("-echo needs -writes and -reads")
	case o.keys > 0 && o.history != "":
		return errors.New("say either -keys or -history")
	case given["depth"]:
		return harness.Within("depth", o.depth, 1, mostDepth)
	case name == "load":
		return harness.Within("clients", o.clients, 1, mostClients)
	case name == "read" && o.sample == 0:
		return errors.New("-verify 0: it must be 1 or more")
	}
	return nil
}

// checkSize checks -size, of the commands that have it: a message begins with a number, or with a number and a time.
func (o *options) checkSize() error {
	least, most := o.command.least, uint64(mostMessage)
	if o.command.Name == "append" && o.keys > 0 {
		least = stampLen
	}
	if o.file != "" {
		most = math.MaxInt64
	}
	if least == blockSize && o.size%blockSize != 0 {
		return fmt.Errorf("-size %d: it must be a multiple of %d", o.size, blockSize)
	}
	return harness.Within("size", o.size, least, most)
}

// config is the configuration of the client.
func (o *options) config() (c client.Config, err error) {
	c = client.Config{Device: o.device, Memory: o.memory, Queue: o.queue, Extents: o.extents, Reserve: o.reserve, Spin: o.spin, Log: slog.Default()}
	for _, p := range o.further() {
		if p.Device != o.device && !slices.Contains(c.Further, p.Device) {
			c.Further = append(c.Further, p.Device)
		}
	}
	if o.ordinary {
		c.Pages = umem.Ordinary
	}
	if o.tls == "" {
		return c, nil
	}
	files, err := o.files()
	if err != nil {
		return c, err
	}
	c.Credentials, err = connect.LoadCredentials(files[0], files[1], files[2])
	return c, err
}

// files returns the files of TLS.
func (o *options) files() ([]string, error) {
	files := strings.Split(o.tls, ",")
	if len(files) != 3 {
		return nil, fmt.Errorf("-tls %q: name three files, separated by commas: certificate, key, authority", o.tls)
	}
	return files, nil
}

// to says where the flow is that takes messages.
func (o *options) to() (c client.AppendConfig) {
	c.Flow = o.flow
	first, rest, some := strings.Cut(cmp.Or(o.peer, o.address), ",")
	if some {
		c.Others = strings.Split(rest, ",")
	}
	if o.peer != "" {
		c.Peer = first
	} else {
		c.Address = first
	}
	c.Paths, c.Active = o.further(), o.active
	return c
}

// further returns the further ways to a flow. An address without a device is that of the next member of a group.
func (o *options) further() (all []client.Path) {
	for _, one := range strings.FieldsFunc(o.paths, func(c rune) bool { return c == ',' }) {
		device, address, path := strings.Cut(one, "=")
		if n := len(all); n > 0 && !path {
			all[n-1].Others = append(all[n-1].Others, one)
			continue
		}
		all = append(all, client.Path{Device: device, Address: address})
	}
	return all
}
