package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/printable"
	build "github.com/unifiedd/unifiedd/internal/version"
	"github.com/unifiedd/unifiedd/umem"
)

// captureFlags are the flags of capture. Those that tcpdump has too have tcpdump's names.
type captureFlags struct {
	memory           *umem.Memory // of the region, from the parent process
	ifaces           []string
	file             string
	count            uint64
	snaplen          uint32
	turns            rotateFlags
	said             commentFlags
	user, mode       string
	ownStdout        bool // standard output is a pipe whose mode no other process shares
	keepFree         string
	layout, zeroCopy string
	queues           []int
	ring             int
	steer            string
	take             string
	direction        string
	engine           string
	buffer           string
	beside           string
	priority         int
	joins            []string
	ownOnly          bool
	reserve          bool
	quiet            bool
	list             bool
	numeric          bool
}

func newCapture() *cobra.Command {
	var f captureFlags
	var cfg *config.Config
	c := &cobra.Command{
		Use:   "capture -i INTERFACE [-w FILE|-] [-c COUNT] [FILTER...]",
		Short: "Capture packets of an interface, until Ctrl-C or a number of them",
		Long: `Capture packets of one interface or several to a file, to standard output, or only count
them. The file is pcapng, which Wireshark, tshark and tcpdump open.

As with tcpdump, the capture has copies of what arrives and of what the host sends, and the
host receives its packets as before. Add --engine xdp if you need copies as they look on the
wire, segmented and with checksums.

With --take, packets that match FILTER go to the capture and nowhere else: the host does not see
them. That saves the kernel's copy where the driver has zero copy. All other packets go on to the
host. --take is refused on the loopback interface, and on interfaces with the default route or
your SSH session; --take=anyway is not.`,
		Example: `  unifiedd capture -i eth1 -w feed.pcapng udp port 5000
  unifiedd capture -i eth1 -Q in -w arriving.pcapng
  unifiedd capture -i eth1 --take -w feed.pcapng udp port 5000
  unifiedd capture -i eth1 --join 239.1.2.3 --join 232.1.2.3,10.0.0.5 -w feed.pcapng udp
  unifiedd capture -i eth1 -c 100 -w - | tshark -r -
  unifiedd capture -i eth1 -s 128 -C 100 -W 10 -w ring.pcapng
  unifiedd capture -i eth1 -G 3600 -w %Y%m%d-%H.pcapng`,
		PreRunE: func(c *cobra.Command, args []string) (err error) { // an error here is a usage error
			if f.list {
				return nil
			}
			if f.count == 0 && c.Flags().Changed("count") {
				return errors.New("-c 0 captures nothing (leave it out to capture until the end)")
			}
			cfg, err = f.config(strings.Join(args, " "), c.Flags().Changed)
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if f.list {
				return listInterfaces(c.OutOrStdout())
			}
			if err := f.checkTake(); err != nil {
				return err
			}
			log := newCommandLog(c.ErrOrStderr())
			here, err := giveUp(cfg, f.reserve, f.user, log)
			if err != nil {
				return ended(err)
			}
			f.ownStdout, f.memory, cfg.Flows[0].To.Opened = here.OwnStdout, here.Memory, here.Opened
			return capture(c.Context(), f, cfg, log, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.register(c)
	c.SetFlagErrorFunc(explainHabit)
	return c
}

func (f *captureFlags) register(c *cobra.Command) {
	s := c.Flags()
	s.StringArrayVarP(&f.ifaces, "interface", "i", nil, "`INTERFACE` to capture on; may be given several times, for one file with the packets of all")
	s.StringVarP(&f.file, "write", "w", "", "`FILE` to write, - for standard output; without it packets are counted only")
	s.StringVar(&f.said.file, "capture-comment", "", "`TEXT` that the file says of itself")
	s.Func("ifcomment", "comment `TEXT` for the interface of the -i before it", func(text string) error {
		return f.said.of(f.ifaces, text)
	})
	s.Uint64VarP(&f.count, "count", "c", 0, "end after so many packets")
	s.Uint32VarP(&f.snaplen, "snapshot-length", "s", 0, "keep at most so many `BYTES` of each packet; 0: all of them")
	s.StringVarP(&f.turns.size, "file-size", "C", "", "begin a new file before one has more than `SIZE` million bytes (or 100k, 10m, 1g); a number is appended to the name")
	s.IntVarP(&f.turns.seconds, "rotate-seconds", "G", 0, "begin a new file after so many `SECONDS`; the name is a pattern of strftime, as in out-%H%M%S.pcapng")
	s.IntVarP(&f.turns.files, "file-count", "W", 0, "with -C use so many `FILES` over and over; with -G alone end after so many")
	s.StringVarP(&f.turns.command, "postrotate-command", "z", "", "run `COMMAND` FILE for each file of -C or -G when it is complete")
	s.StringVarP(&f.user, "relinquish-privileges", "Z", "", "started as root, capture as `USER`, to whom the files belong (default: the user who called sudo; else the user unifiedd, if there is one; else root)")
	s.StringVar(&f.mode, "mode", "", "`MODE` of files, such as 0640")
	s.StringVar(&f.keepFree, "keep-free", "0", "keep this `SIZE` of the disk free, such as 10GiB or 5%; the capture waits while there is less")
	s.StringVar(&f.layout, "layout", string(config.LayoutPacked), "packed (one copy, fewest bytes) or slot (no copy, more bytes)")
	s.StringVar(&f.take, "take", "", "take the packets from the host, by zero copy where the driver has it; anyway: also from an interface that the host depends on")
	s.Lookup("take").NoOptDefVal = takePackets
	s.StringVarP(&f.direction, "direction", "Q", "", "copy what comes `in`, goes out, or both: in, out or inout (default inout)")
	s.StringVar(&f.engine, "engine", "", "how copies are made: packet (as tcpdump has them, and nothing is attached) or xdp (as on the wire) (default packet)")
	s.StringVar(&f.buffer, "buffer-size", "", "`SIZE` of the ring that holds copies while the disk is slow (default 64MiB)")
	s.StringVar(&f.zeroCopy, "zero-copy", string(config.ZeroCopyPrefer), "require, prefer or copy")
	s.IntSliceVar(&f.queues, "queues", nil, "receive queues to bind (default all)")
	s.IntVar(&f.ring, "ring", 0, "entries of each ring of a queue (default as many as there are frames for, 32768 at most)")
	s.BoolVarP(&f.ownOnly, "no-promiscuous-mode", "p", false, "capture only what is for this host")
	s.StringVar(&f.steer, "steer", "", "have the card put what FILTER matches into --queues: require or prefer (default not so; alone: require)")
	s.Lookup("steer").NoOptDefVal = string(config.SteerRequire)
	s.StringVar(&f.beside, "beside", "", "join the dispatcher that libxdp's tools put on the interface, beside the programs in it: libxdp")
	s.IntVar(&f.priority, "priority", config.DefaultPriority, "with --beside: programs of lower priorities run first")
	s.StringArrayVar(&f.joins, "join", nil, "multicast `GROUP[,SOURCE]` that the host joins meanwhile, so that switches pass its packets on; may be given several times")
	s.BoolVar(&f.reserve, "reserve", true, "reserve huge pages that are missing, and give them back at the end")
	s.BoolVarP(&f.quiet, "quiet", "q", false, "no live count")
	s.BoolVarP(&f.list, "list-interfaces", "D", false, "list the interfaces there are, and end")
	addNumeric(c, &f.numeric)
	c.MarkFlagsOneRequired("interface", "list-interfaces")
	completeInterfaceFlag(c, "interface")
}

// Settings for a daemon that only captures: docs/how-to/tuning.md.
const (
	captureSleep   = time.Millisecond
	passiveSize    = 4 * config.MiB
	captureExtents = 64 // they hold packets while the disk is busy with other work
)

// config converts the flags to a configuration. given says which flags the command line has.
func (f *captureFlags) config(filter string, given func(flag string) bool) (*config.Config, error) {
	if err := f.noneIsAny(); err != nil {
		return nil, err
	}
	c := config.Default()
	one := config.NewFlow("capture")
	one.From.Interface, one.From.Filter = f.ifaces[0], filter
	if len(f.ifaces) > 1 {
		one.From.Interfaces = f.ifaces
	}
	one.From.ZeroCopy, one.From.Queues, one.From.Ring = config.ZeroCopy(f.zeroCopy), f.queues, f.ring
	one.From.Promiscuous, one.From.Steer = !f.ownOnly, config.Steer(f.steer)
	if err := f.setGroups(&one.From); err != nil {
		return nil, err
	}
	if err := f.setEngine(&one.From, given); err != nil {
		return nil, err
	}
	one.From.Beside, one.From.Priority = config.Beside(f.beside), f.priority
	one.To.Layout, one.To.Exact, one.To.Prepare = config.Layout(f.layout), true, config.PrepareNone
	one.To.Snaplen = config.Size(f.snaplen)
	switch f.file {
	case "":
		one.To.File = os.DevNull
	case "-":
		one.To.File = "/dev/stdout"
	default:
		path, err := absolute(f.file)
		if err != nil {
			return nil, err
		}
		one.To.File = path
	}
	if err := f.files(&one.To); err != nil {
		return nil, err
	}
	if err := f.comments(&one); err != nil {
		return nil, err
	}
	c.Flows, c.Workers[0].Sleep, c.Region.Extents = []config.Flow{one}, captureSleep, captureExtents
	if e, _ := one.ChosenEngine(); e == config.EnginePacket {
		passiveRegion(c)
	}
	c.Complete()
	return c, byFlag(c.Validate(configOptions()), captureSettings)
}

// passiveRegion makes the region small: packets are in the ring of the socket.
func passiveRegion(c *config.Config) {
	c.Region.Size, c.Region.Extents, c.Region.Pages = passiveSize, 2, config.PagesOrdinary
}

// setGroups sets the multicast groups.
func (f *captureFlags) setGroups(from *config.From) error {
	for _, text := range f.joins {
		group, source, some := strings.Cut(text, ",")
		var j config.Join
		var err error
		if j.Group, err = netip.ParseAddr(group); err == nil && some {
			j.Source, err = netip.ParseAddr(source)
		}
		if err != nil {
			return fmt.Errorf("--join %s: %w (write it as 239.1.2.3, or as 232.1.2.3,10.0.0.5 with a source)", text, err)
		}
		from.Join = append(from.Join, j)
	}
	return nil
}

func capture(parent context.Context, f captureFlags, cfg *config.Config, log *slog.Logger, stdout, stderr io.Writer) (err error) {
	stream, end, err := f.stream(stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	signal.Ignore(syscall.SIGPIPE) // if the reader of the output ends, the capture ends as after any error
	ctx, stop := untilSignal(parent)
	defer stop()
	asked := statisticsAsked()
	if stream == nil && cfg.Flows[0].To.Opened == "" {
		if err := checkWritable(filepath.Dir(cfg.Flows[0].To.File)); err != nil {
			return err
		}
	}
	d, err := flows.Open(cfg, flows.Options{
		Version: build.Get(version).Version, Log: log, Count: f.count, Stream: stream, Notes: privsep.CommandNotes(os.Geteuid()), Memory: f.memory,
		Complete: f.turns.afterwards(stderr).file,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Start(); err != nil {
		return explainOccupied(ctx, err, f.ifaces)
	}
	one := d.Flows()[0]
	only := ""
	if f.file == "" {
		only = "; counted only, as there is no -w"
	}
	fmt.Fprintf(stderr, "capturing on %s: %s%s\n", strings.Join(f.ifaces, ", "), whatIsTaken(cfg.Flows[0].From, one.Status()), only)
	follow(ctx, one, asked, stderr, f.quiet)
	defer interrupt(stream, readerPatience)()
	err = stopCommand(one, stderr)
	s := one.Status()
	summarize(stderr, s)
	if err == nil && s.State == status.Failed { // the flow failed before it was stopped
		err = errors.New(s.Error)
	}
	return err
}

// follow prints a live count until the capture ends.
func follow(ctx context.Context, f *flows.Flow, asked <-chan os.Signal, w io.Writer, quiet bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	live := !quiet && isTerminal(w)
	if live {
		defer fmt.Fprintln(w)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.Ended():
			return
		case <-asked:
			s := f.Status()
			fmt.Fprintf(w, "%d packets, %d bytes, %s\n", s.Packets, s.Bytes, losses(&s))
			continue
		case <-tick.C:
		}
		if s := f.Status(); live {
			fmt.Fprintf(w, "\r%d packets, %.0f/s, %s, %d lost ", s.Packets, s.PPS, bits(s.BPS), lost(&s))
		}
	}
}

// commentFlags are the comments in a capture's file.
type commentFlags struct {
	file       string   // --capture-comment, as in dumpcap
	interfaces []string // --ifcomment, of the interface with the same number
}

// of makes text the comment of the last named interface.
func (f *commentFlags) of(ifaces []string, text string) error {
	if len(ifaces) == 0 {
		return errors.New("it sets a comment for the -i before it, and there is none")
	}
	f.interfaces = append(f.interfaces, make([]string, len(ifaces)-len(f.interfaces))...)
	f.interfaces[len(ifaces)-1] = text
	return nil
}

// comments sets the comments of the file and of its interfaces.
func (f *captureFlags) comments(one *config.Flow) error {
	said := &f.said
	if f.file == "" && (said.file != "" || said.interfaces != nil) {
		return errors.New("--capture-comment and --ifcomment are in a file: name it by -w")
	}
	one.To.Comment = said.file
	switch {
	case said.interfaces == nil:
	case len(f.ifaces) == 1:
		one.From.Comment = said.interfaces[0]
	default:
		one.From.Comments = append(said.interfaces, make([]string, len(f.ifaces)-len(said.interfaces))...)
	}
	return nil
}

// addNumeric accepts tcpdump's -n and -nn. They have no effect, because output is always numeric.
func addNumeric(c *cobra.Command, n *bool) {
	c.Flags().BoolVarP(n, "numeric", "n", false, "accepted as tcpdump's is; addresses and ports never become names here")
}

// listInterfaces prints the machine's interfaces, as tcpdump -D does.
func listInterfaces(w io.Writer) error {
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for n, i := range all {
		var is []string
		for _, f := range []struct {
			flag net.Flags
			name string
		}{{net.FlagUp, "Up"}, {net.FlagRunning, "Running"}, {net.FlagLoopback, "Loopback"}} {
			if i.Flags&f.flag != 0 {
				is = append(is, f.name)
			}
		}
		if _, err := fmt.Fprintf(w, "%d.%s [%s]\n", n+1, printable.Text(i.Name), strings.Join(is, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// noneIsAny refuses "any", tcpdump's name for all interfaces, unless an interface has that name.
func (f *captureFlags) noneIsAny() error {
	if !slices.Contains(f.ifaces, "any") {
		return nil
	}
	if _, err := net.InterfaceByName("any"); err == nil {
		return nil
	}
	return errors.New("-i any: packets are received from the queues of named interfaces; name each: -i eth0 -i eth1 (unifiedd capture -D lists them)")
}
