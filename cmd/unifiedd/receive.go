package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/transfer"
	"github.com/unifiedd/unifiedd/internal/printable"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// receiveFlags are the flags of receive.
type receiveFlags struct {
	transferFlags
	listen       string
	allow        []string
	senders      uint64
	keepFreeText string
	state        string
	force, once  bool
	status       bool
	anyGID       bool

	keepFree uint64
}

func newReceive() *cobra.Command {
	var f receiveFlags
	c := &cobra.Command{
		Use:   "receive --rdma DEVICE DIRECTORY|DEVICE",
		Short: "Take copies from other machines over RDMA into a directory or onto a block device",
		Long: `Take what 'unifiedd send' sends, into files below DIRECTORY or onto a block device, until
Ctrl-C. RDMA writes into memory from which the disk writes, and nothing is copied on the way.

A file appears under its name only after it is complete, flushed and verified. Before, it
is .NAME.unifiedd-part, and what is durable of it is recorded in .NAME.unifiedd-copy. So it is
not sent again when a connection is lost, or one of both sides is killed. A file of the same
name is replaced. Of a device the record is in the --state directory. --status says what is
not complete; it ends with status 1 if there is something.

Names that lead out of DIRECTORY, by .., a link or a leading /, are refused. Without --cert
any host that reaches the port may send.`,
		Example: `  unifiedd receive --rdma roce:eth1 /srv/images
  unifiedd receive --rdma mlx5_0 --once --force /dev/nvme1n1
  unifiedd receive --rdma mlx5_0 --cert here.pem --key here.key --ca ca.pem --allow backup1 /srv/images
  unifiedd receive --status /srv/images`,
		Args: cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error { // an error here is a usage error
			return f.check()
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.status {
				return incomplete(c.OutOrStdout(), args[0], f.state)
			}
			if _, err := os.Stat(args[0]); err != nil {
				return fmt.Errorf("receive: %w", err)
			}
			log := newCommandLog(c.ErrOrStderr())
			region := f.region(f.senders)
			memory, err := f.begin(region, log)
			if err == nil {
				d, oerr := f.open(region, memory)
				if err = oerr; err == nil {
					d.region.Warn(log)
					err = errors.Join(receive(c.Context(), &f, d, args[0], log, c.ErrOrStderr()), d.Close())
				}
			}
			if err = ended(err); err != nil && !errors.As(err, new(*statusError)) && !strings.Contains(err.Error(), args[0]) {
				err = fmt.Errorf("receive into %s: %w", args[0], err)
			}
			return err
		},
	}
	f.register(c)
	s := c.Flags()
	s.StringVar(&f.listen, "listen", ":"+transferPort, "`ADDRESS` to listen at over TCP")
	s.StringArrayVar(&f.allow, "allow", nil, "with --cert: `NAME` in the certificate of a sender that may send (default all of --ca); may be given several times")
	s.Uint64Var(&f.senders, "senders", 2, "`NUMBER` of senders at once; each has --memory")
	s.StringVar(&f.keepFreeText, "keep-free", "0", "keep this `SIZE` of the disk free, such as 10GiB")
	s.StringVar(&f.state, "state", "/var/lib/unifiedd", "`DIRECTORY` with the records of devices")
	s.BoolVar(&f.force, "force", false, "write to the device even if it is not empty, or in use")
	s.BoolVar(&f.once, "once", false, "end when one copy is complete")
	s.BoolVar(&f.anyGID, "allow-any-gid", false, "let senders use RDMA from another address than they connect from")
	s.BoolVar(&f.status, "status", false, "say what is not complete, and end")
	c.MarkFlagsOneRequired("rdma", "status")
	return c
}

func (f *receiveFlags) check() error {
	if f.status {
		return nil
	}
	if err := f.transferFlags.check(); err != nil {
		return err
	}
	keep, err := config.ParseSize(f.keepFreeText)
	if err != nil {
		return fmt.Errorf("--keep-free: %w", err)
	}
	f.keepFree = uint64(keep)
	switch {
	case f.senders < 1 || f.senders > 64:
		return fmt.Errorf("--senders %d: it must be from 1 to 64", f.senders)
	case len(f.allow) > 0 && f.certificate == "":
		return errors.New("--allow names certificates: say --cert, --key and --ca")
	}
	return nil
}

// receive receives until a signal, or until one copy is complete.
func receive(parent context.Context, f *receiveFlags, d *transferDevice, place string, log *slog.Logger, stderr io.Writer) (err error) {
	ctx, stop := untilSignal(parent)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := checkPlace(place); err != nil {
		return err
	}
	said := make(chan transfer.Copy, 64)
	c := transfer.ReceiverConfig{Endpoint: d.Endpoint, Path: place, State: f.state, Force: f.force, KeepFree: f.keepFree, Window: int(f.window), Senders: int(f.senders),
		Permit: device.Permit(f.allow), AllowAnyGID: f.anyGID, Log: log, Done: func(one transfer.Copy) { said <- one }}
	secret, err := f.credentials(log)
	if err != nil {
		return err
	}
	r, err := transfer.OpenReceiver(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	l, err := connect.Listen(ctx, f.listen, connect.Config{Credentials: secret, Failed: device.LogFailures(log)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if !f.quiet {
		fmt.Fprintf(stderr, "receiving into %s: listening at %v over %s\n", place, l.Addr(), f.rdma)
	}
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, l) }()
	asked := statisticsAsked()
	for {
		select {
		case one := <-said:
			if !f.quiet {
				tellCopy(stderr, one)
			}
			if f.once {
				cancel()
			}
		case <-asked:
			tellReceived(stderr, r.Stats(), l, d)
		case err = <-served:
			if !f.quiet {
				tellReceived(stderr, r.Stats(), l, d)
			}
			return err
		}
	}
}

// checkPlace returns an error with the remedy if this process may not write to the directory or device.
func checkPlace(place string) error {
	if info, err := os.Stat(place); err == nil && !info.IsDir() {
		return checkAccess("write to", place, unix.R_OK|unix.W_OK, "let the user read and write it")
	}
	return checkWritable(place)
}

// tellCopy prints a copy that is complete.
func tellCopy(w io.Writer, c transfer.Copy) {
	moved := c.Size - c.Resumed
	fmt.Fprintf(w, "%s: %d bytes from %s, %d of them in %.2f s, %s; checksum %x\n", printable.Text(c.Name), c.Size, c.Peer, moved, c.Took.Seconds(),
		bits(float64(moved)*8/max(c.Took.Seconds(), 1e-9)), c.Digest)
}

// tellReceived prints the counters.
func tellReceived(w io.Writer, s transfer.ReceiverStats, l *connect.Listener, d *transferDevice) {
	fmt.Fprintf(w, "%s complete, %s; %d bytes received, %d bytes of holes, %d bytes resumed\n", copiesText(s.Complete), plural(int(s.Connections), "connection"), s.Bytes, s.Holes, s.Resumed)
	fmt.Fprintf(w, "refused: %s; in the handshake: %s; ended: %s; left by the sender: %d\n", nonzero(reasons(s.Refused)), nonzero(device.Handshakes(l)), nonzero(reasons(s.Ended)), s.Left)
	fmt.Fprintln(w, d.copies(s.Kernel, s.Bytes))
}

func copiesText(n uint64) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}

// reasons names the reasons of counters.
func reasons(counts map[protocol.Reason]uint64) map[string]uint64 {
	all := map[string]uint64{}
	for why, n := range counts {
		all[why.String()] = n
	}
	return all
}

// incomplete prints what is not complete below a directory, or on a device.
func incomplete(w io.Writer, place, state string) error {
	all, err := transfer.Incomplete(place, state)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		_, err := fmt.Fprintf(w, "%s: nothing is incomplete\n", place)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	open := 0
	for _, one := range all {
		what, when := "incomplete", "%d of %d bytes are durable since %s"
		if one.Complete {
			what = "complete"
		} else {
			open++
		}
		fmt.Fprintf(t, "%s\t%s\t"+when+"\n", printable.Text(one.Name), what, one.Durable, one.Size, one.Written.Format(time.RFC3339))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if open > 0 {
		return &statusError{status: exitFailed}
	}
	return nil
}
