package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/transfer"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Exit statuses of send, besides those of all commands.
const (
	exitRefused = 3 // the receiver does not want it
	exitChanged = 4 // the source has changed
	exitSpace   = 5 // the receiver's disk is full
	exitLost    = 6 // there was no connection for too long
)

// transferPort is where receivers listen if nothing else is said.
const transferPort = "7475"

// sendFlags are the flags of send.
type sendFlags struct {
	transferFlags
	as           string
	limitText    string
	times, perms bool
	timeout      time.Duration
	server       string

	limit uint64 // bytes a second
}

func newSend() *cobra.Command {
	var f sendFlags
	c := &cobra.Command{
		Use:   "send --rdma DEVICE FILE|DEVICE NODE",
		Short: "Copy a file or a block device to the disk of another machine over RDMA",
		Long: `Copy a file or a block device to NODE, where 'unifiedd receive' runs. NODE is HOST or
HOST:PORT (default ` + transferPort + `), at an address of its RDMA device. The disk reads into memory from
which the RDMA device sends, and nothing is copied on the way.

The file appears under its name only after it is complete, flushed and verified. When the
connection is lost, it is made again, and the copy goes on from what is durable at the
receiver; so it does when the command is started again. Holes of the file stay holes. If the
source is written meanwhile, the command ends, and no copy is kept.

On a terminal a line shows the bytes, the rate and the time that is left, as rsync's does.

The exit status is 3 where the receiver does not want the copy, 4 where the source has changed,
5 where the receiver's disk is full, 6 where there was no connection for --timeout (what is
durable stays: send again), 1 after another error, 2 where the command line is wrong, else 0.`,
		Example: `  unifiedd send --rdma roce:eth1 disk.img 10.0.0.2
  unifiedd send --rdma mlx5_0 --times --perms --limit 500MiB /dev/nvme0n1 10.0.0.2 --as nvme0.img`,
		Args: cobra.ExactArgs(2),
		PreRunE: func(*cobra.Command, []string) error { // an error here is a usage error
			return f.check()
		},
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return errors.Join(checkAccess("read", args[0], unix.R_OK, "make it readable for the user"), fmt.Errorf("send: %w", err))
			}
			log := newCommandLog(c.ErrOrStderr())
			region := f.region(1)
			memory, err := f.begin(region, log)
			if err == nil {
				d, oerr := f.open(region, memory)
				if err = oerr; err == nil {
					d.region.Warn(log)
					err = errors.Join(send(c.Context(), &f, d, args[0], args[1], log, c.ErrOrStderr()), d.Close())
				}
			}
			return sendStatus(args[0], ended(err))
		},
	}
	f.register(c)
	s := c.Flags()
	s.StringVar(&f.as, "as", "", "`NAME` of the copy, below the receiver's directory (default the last part of FILE)")
	s.StringVar(&f.limitText, "limit", "", "send at most so much in a second, such as 100MiB (`RATE`)")
	s.BoolVarP(&f.times, "times", "t", false, "give the copy the time of modification of the file")
	s.BoolVarP(&f.perms, "perms", "p", false, "give the copy the permissions of the file")
	s.DurationVar(&f.timeout, "timeout", time.Minute, "try for this `TIME` to connect again while nothing moves")
	s.StringVar(&f.server, "server-name", "", "with --cert: `NAME` that the receiver's certificate must have (default HOST)")
	if err := c.MarkFlagRequired("rdma"); err != nil {
		panic(err) // the flag was added above
	}
	return c
}

func (f *sendFlags) check() error {
	if err := f.transferFlags.check(); err != nil {
		return err
	}
	if f.limitText != "" {
		n, err := config.ParseSize(strings.TrimSuffix(f.limitText, "/s"))
		if err != nil {
			return fmt.Errorf("--limit: %w", err)
		}
		if n == 0 {
			return errors.New("--limit 0 sends nothing (leave it out to send without a limit)")
		}
		f.limit = uint64(n)
	}
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout %v: it must be more than 0", f.timeout)
	}
	return nil
}

// sendStatus adds the source to an error, and the exit status.
func sendStatus(source string, err error) error {
	if err == nil || errors.As(err, new(*statusError)) {
		return err
	}
	if !strings.Contains(err.Error(), source) {
		err = fmt.Errorf("send %s: %w", source, err)
	}
	why, is := errors.AsType[protocol.Reason](err)
	switch {
	case errors.Is(err, transfer.ErrLost):
		return &statusError{exitLost, fmt.Errorf("%w (what is durable at the receiver stays: send it again to go on)", err)}
	case !is:
		return err
	case why == protocol.Changed:
		return &statusError{exitChanged, err}
	case why == protocol.NoSpace:
		return &statusError{exitSpace, err}
	case why != protocol.BadPayload && why != protocol.DiskError:
		return &statusError{exitRefused, err}
	}
	return err
}

// send sends the source.
func send(parent context.Context, f *sendFlags, d *transferDevice, source, node string, log *slog.Logger, stderr io.Writer) (err error) {
	ctx, stop := untilSignal(parent)
	defer stop()
	if err := checkAccess("read", source, unix.R_OK, "make it readable for the user"); err != nil {
		return err
	}
	c := transfer.SenderConfig{Endpoint: d.Endpoint, Path: source, Address: node, Name: f.as, Window: int(f.window), Limit: f.limit, Times: f.times, Perms: f.perms,
		Timeout: f.timeout, Log: log, Connect: connect.Config{ServerName: f.server}}
	if _, _, err := net.SplitHostPort(node); err != nil {
		c.Address = net.JoinHostPort(strings.Trim(node, "[]"), transferPort)
	}
	if c.Connect.Credentials, err = f.credentials(log); err != nil {
		return err
	}
	s, err := transfer.OpenSender(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	began := time.Now()
	shown := showSending(s, stderr, !f.quiet && isTerminal(stderr))
	err = s.Run(ctx)
	shown(err == nil)
	if err != nil || f.quiet {
		return err
	}
	took := max(time.Since(began).Seconds(), 1e-9)
	st := s.Stats()
	fmt.Fprintf(stderr, "sent %d bytes in %.2f s, %s; %s of holes, %d bytes resumed, %s\n", st.Sent, took, bits(float64(st.Sent)*8/took), plural(int(st.Holes), "byte"), st.Resumed,
		plural(int(st.Connections), "connection"))
	fmt.Fprintf(stderr, "checksum: %x\n%s\n", s.Digest(), d.copies(st.Kernel, st.Sent))
	return nil
}

// showSending shows the progress of a sender, until the result is called.
func showSending(s *transfer.Sender, w io.Writer, live bool) (shown func(well bool)) {
	if !live {
		return func(bool) {}
	}
	end, done := make(chan struct{}), make(chan struct{})
	var p *progress
	go func() {
		defer close(done)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			st := s.Stats()
			if p == nil && st.Connections > 0 {
				p = newProgress(w, st.Size, st.Resumed, time.Now())
			}
			if p != nil {
				p.tick(st.At, time.Now(), whySlow(st))
			}
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}()
	return func(well bool) {
		close(end)
		<-done
		switch st := s.Stats(); {
		case p == nil:
		case well:
			p.end(st.At, st.At-min(st.Resumed, st.At), time.Now())
		default:
			fmt.Fprintln(w)
		}
	}
}

// whySlow says what a sender waits for.
func whySlow(s transfer.SenderStats) string {
	switch {
	case s.Waits != "":
		return fmt.Sprintf("connecting again, %d", s.Attempts)
	case s.At == s.Size && s.Durable < s.Size:
		return "the receiver's disk writes the rest"
	}
	return ""
}
