package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/capinput"
	build "github.com/unifiedd/unifiedd/internal/version"
	"github.com/unifiedd/unifiedd/umem"
)

// replayFlags are the flags of replay. Those that tcpreplay has too have tcpreplay's names.
type replayFlags struct {
	iface      string
	speed      float64
	pps, mbps  float64
	top        bool
	loop       int
	limit      uint64
	duration   int
	filter     string
	maxSleep   int
	zeroCopy   string
	ring       int
	spin, late time.Duration
	reserve    bool
	user       string
	quiet      bool
}

func newReplay() *cobra.Command {
	var f replayFlags
	var cfg *config.Config
	c := &cobra.Command{
		Use:   "replay FILE... -i INTERFACE",
		Short: "Send the packets of captures by an interface, as they were recorded or at a set speed",
		Long: `Send the packets of captures by an interface, in the order of the files and of what is
in them. A FILE is a pcap or pcapng capture of any program, also one that is being
written, or the prefix of the segments of a recording flow, what its to.file says.

The disk reads them into memory that it shares with the interface, and they are sent
from there. Packets that cannot be sent (of another link type than the interface's, cut by a
snapshot length, too long for the interface) are counted by their reason. The interface
goes on with the host's own traffic.`,
		Example: `  unifiedd replay -i eth1 feed.pcapng
  unifiedd replay -i eth1 --mbps 500 --loop 10 --filter 'udp port 5000' a.pcap b.pcap
  unifiedd replay -i eth1 --topspeed --duration 60 --loop 0 feed.pcapng`,
		Args: cobra.MinimumNArgs(1),
		PreRunE: func(_ *cobra.Command, args []string) (err error) { // an error here is a usage error
			cfg, err = f.config(args)
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error {
			log := newCommandLog(c.ErrOrStderr())
			here, err := giveUp(cfg, f.reserve, f.user, log)
			if err != nil {
				return ended(err)
			}
			return replay(c.Context(), f, cfg, here.Memory, log, c.ErrOrStderr())
		},
	}
	f.register(c)
	return c
}

func (f *replayFlags) register(c *cobra.Command) {
	s := c.Flags()
	s.StringVarP(&f.iface, "intf1", "i", "", "`INTERFACE` to send by")
	s.Float64VarP(&f.speed, "multiplier", "x", 1, "so many `TIMES` as fast as recorded")
	s.Float64VarP(&f.pps, "pps", "p", 0, "so many `PACKETS` a second")
	s.Float64VarP(&f.mbps, "mbps", "M", 0, "so many `MEGABITS` a second")
	s.BoolVarP(&f.top, "topspeed", "t", false, "as fast as the interface takes them")
	s.IntVarP(&f.loop, "loop", "l", 1, "send all so many `TIMES`; 0: until Ctrl-C")
	s.Uint64VarP(&f.limit, "limit", "L", 0, "end after so many `PACKETS`; 0: all")
	s.IntVar(&f.duration, "duration", 0, "end after so many `SECONDS`; 0: when all is sent")
	s.StringVar(&f.filter, "filter", "", "send only packets that match `EXPRESSION`, which is tcpdump's")
	s.IntVar(&f.maxSleep, "maxsleep", 0, "wait no longer than so many `MILLISECONDS` between two packets; 0: as recorded")
	s.StringVar(&f.zeroCopy, "zero-copy", string(config.ZeroCopyPrefer), "require, prefer or copy")
	s.IntVar(&f.ring, "ring", 4096, "entries of the rings for sending")
	s.DurationVar(&f.spin, "spin", 50*time.Microsecond, "do not sleep for this `TIME` before a packet is due")
	s.DurationVar(&f.late, "late", time.Millisecond, "count packets as late that leave later than this `TIME` after they were due")
	s.BoolVar(&f.reserve, "reserve", true, "reserve huge pages that are missing, and give them back at the end")
	s.StringVarP(&f.user, "relinquish-privileges", "Z", "", "started as root, replay as `USER`, who reads the files (default: the user who called sudo; else the user unifiedd, if there is one; else root)")
	s.BoolVarP(&f.quiet, "quiet", "q", false, "no live count")
	c.MarkFlagsMutuallyExclusive("multiplier", "pps", "mbps", "topspeed")
	if err := c.MarkFlagRequired("intf1"); err != nil {
		panic(err) // the flag was added above
	}
	completeInterfaceFlag(c, "intf1")
}

// pace returns the pace that the flags set.
func (f *replayFlags) pace() config.Pace {
	switch {
	case f.top:
		return config.Pace{By: config.PaceTop}
	case f.pps != 0:
		return config.Pace{By: config.PacePackets, Value: f.pps}
	case f.mbps != 0:
		return config.Pace{By: config.PaceBits, Value: f.mbps * 1e6}
	case f.speed != 1:
		return config.Pace{By: config.PaceTimes, Value: f.speed}
	}
	return config.Pace{}
}

// config converts the flags to a configuration.
func (f *replayFlags) config(names []string) (*config.Config, error) {
	switch {
	case f.maxSleep < 0:
		return nil, fmt.Errorf("--maxsleep %d is no number of milliseconds", f.maxSleep)
	case f.duration < 0:
		return nil, fmt.Errorf("--duration %d is no number of seconds", f.duration)
	}
	if err := checkUser(f.user); err != nil {
		return nil, err
	}
	c := config.Default()
	one := config.NewFlowOf(config.KindStorageNetwork, "replay")
	for _, name := range names {
		path, err := inputPath(name)
		if err != nil {
			return nil, err
		}
		one.From.Files = append(one.From.Files, path)
	}
	one.From.Loop, one.From.Filter = f.loop, f.filter
	if f.loop == 0 {
		one.From.Loop = config.Endless
	}
	one.To.Interface, one.To.ZeroCopy, one.To.Ring = f.iface, config.ZeroCopy(f.zeroCopy), f.ring
	one.To.Pace, one.To.Spin, one.To.Late = f.pace(), f.spin, f.late
	one.To.MaxGap = time.Duration(f.maxSleep) * time.Millisecond
	c.Flows = []config.Flow{one}
	c.Complete()
	return c, byFlag(c.Validate(configOptions()), replaySettings)
}

// inputPath returns the path of a capture: an absolute path, or standard input.
func inputPath(name string) (string, error) {
	if name == "-" {
		return capinput.Standard, nil
	}
	return absolute(name)
}

func replay(parent context.Context, f replayFlags, cfg *config.Config, memory *umem.Memory, log *slog.Logger, stderr io.Writer) (err error) {
	ctx, stop := untilSignal(parent)
	defer stop()
	asked := statisticsAsked()
	if err := checkReadable(cfg.Flows[0].From.Files); err != nil {
		return err
	}
	d, err := flows.Open(cfg, flows.Options{
		Version: build.Get(version).Version, Log: log, Count: f.limit, Context: ctx, Memory: memory,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	begun := time.Now()
	if err := d.Start(); err != nil {
		return err
	}
	one := d.Flows()[0]
	fmt.Fprintf(stderr, "sending by %s: %s, pace %s\n", f.iface, strings.Join(cfg.Flows[0].From.Files, ", "), cfg.Flows[0].To.Pace)
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(f.duration)*time.Second)
		defer cancel()
	}
	follow(ctx, one, asked, stderr, f.quiet)
	err = one.Stop()
	s := one.Status()
	summarizeReplay(stderr, s, time.Since(begun))
	if err == nil && s.State == status.Failed { // the flow failed before it was stopped
		err = errors.New(s.Error)
	}
	return err
}

// summarizeReplay prints tcpreplay's summary of a replay, with the reasons of losses.
func summarizeReplay(w io.Writer, s status.Flow, took time.Duration) {
	seconds := max(took.Seconds(), 1e-9)
	fmt.Fprintf(w, "%d packets sent, %d bytes, in %.2f s: %.0f packets/s, %s\n", s.Packets, s.Bytes, seconds, float64(s.Packets)/seconds, bits(float64(s.Bytes)*8/seconds))
	fmt.Fprintf(w, "%d packets in the captures; not sent: %s\n", s.Offered, nonzero(s.Dropped))
	if r := s.Replay; r != nil {
		tellReplay(w, "", r)
	}
	fmt.Fprintf(w, "copies per byte: ours %s, the kernel's %s\n", perByte(s.CopiedBytes, s.Bytes), perByte(s.KernelBytes, s.Bytes))
}

// tellReplay prints how packets were sent.
func tellReplay(w io.Writer, before string, r *status.Replay) {
	if d := r.Lateness; d != nil {
		fmt.Fprintf(w, "%slate by: median %s, 99 %% %s, at most %s; by more than %s: %d packets\n", before, brief(d.P50), brief(d.P99), brief(d.Max), time.Duration(r.Allowed), r.Late)
	}
	if r.Unsent > 0 {
		fmt.Fprintf(w, "%sthe interface dropped %d packets that it was to send, ours or others'\n", before, r.Unsent)
	}
	if r.Paused > 0 {
		fmt.Fprintf(w, "%sthe interface was down for %.1f s\n", before, r.Paused)
	}
}

// printReplay prints the source that reads captures, and the sink that sends their packets.
func printReplay(w io.Writer, f *status.Flow) {
	r := f.Replay
	if r == nil {
		return
	}
	if f.Filter != "" {
		fmt.Fprintf(w, "  filter\t%s\n", f.Filter)
	}
	fmt.Fprintf(w, "  captures\t%s, sent to their ends %d times; at offset %d of %s\n", plural(r.Captures, "file"), r.Played, r.Offset, r.File)
	fmt.Fprintf(w, "  sent\t%d packets of %d, pace %s; not sent: %s\n", f.Packets, f.Offered, r.Pace, nonzero(f.Dropped))
	tellReplay(w, "  \t", r)
	fmt.Fprintf(w, "  granted\t%s\n", grantedToSend(f))
	fmt.Fprintf(w, "  full\tthe interface was full in %d rounds\n", f.Stalls)
}

// grantedToSend describes what the kernel granted, without the program, which sending does not need.
func grantedToSend(f *status.Flow) string {
	mode, _, _ := strings.Cut(granted(f), ", XDP in the ")
	return mode
}
