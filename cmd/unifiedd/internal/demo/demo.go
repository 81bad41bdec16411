package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
)

// Options configure a demo.
type Options struct {
	Out     io.Writer
	Log     *slog.Logger
	Version string
	Dir     string // directory for the captures while the demo runs; on a disk
	Keep    bool   // keep the captures there
	Load    func(file string) (*config.Config, error)
	Time    time.Duration // how long the programs send to the five flows
	// FlowTest is the program at the remote end of RDMA flows; empty: found automatically.
	FlowTest string
}

// layouts are shown one after the other.
var layouts = []config.Layout{config.LayoutPacked, config.LayoutSlot}

// Run runs the demo. It returns an error if a step failed, numbers did not add up, or something was
// left behind.
func Run(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("the demo makes network namespaces and attaches a program to an interface, which takes root: sudo unifiedd demo")
	}
	if err := findTools(); err != nil {
		return err
	}
	if err := o.findFlowTest(); err != nil {
		return err
	}
	rec, err := openRecord(ctx, o.Out)
	if err != nil {
		return err
	}
	s := &stage{Options: o, record: rec}
	p, err := s.play(ctx)
	left := s.clear()
	if ctx.Err() != nil {
		return errors.Join(errors.New("the demo was interrupted; what it had made was taken back"), left)
	}
	if err := errors.Join(err, left); err != nil {
		return err
	}
	return s.judge(p)
}

// played has the results of all parts.
type played struct {
	captures []result
	five     *five
	group    *group
}

// play prepares the stage, captures once in each layout, runs all five flows, and then the group.
func (s *stage) play(ctx context.Context) (p played, err error) {
	fmt.Fprintf(s.Out, `Two network namespaces, joined by a veth pair. In one, trafgen sends %d UDP packets of
%s bytes, one every %d µs. In the other, unifiedd captures them
("%s") to disk, while the kernel there goes on answering ping.
`, packets, sizeList(), gap, filterText)
	if err := s.set(); err != nil {
		return p, err
	}
	for _, l := range layouts {
		r, err := s.showCapture(ctx, l)
		if err != nil {
			return p, fmt.Errorf("%s layout: %w", l, err)
		}
		p.captures = append(p.captures, r)
	}
	if p.five, err = s.showFive(ctx); err != nil {
		return p, fmt.Errorf("five flows: %w", err)
	}
	if p.group, err = s.showGroup(ctx); err != nil {
		return p, fmt.Errorf("group: %w", err)
	}
	return p, nil
}

// showCapture captures in one layout, and reads the files with every reader.
func (s *stage) showCapture(ctx context.Context, l config.Layout) (result, error) {
	r, err := s.capture(ctx, l)
	if err != nil {
		return r, err
	}
	fmt.Fprintf(s.Out, "  %s layout: captured; reading the files back\n", l)
	return r, r.readBack(ctx)
}

// judge prints the tables and reports whether everything adds up.
func (s *stage) judge(p played) error {
	if err := errors.Join(table(s.Out, p.captures), p.five.table(s.Out), p.group.table(s.Out)); err != nil {
		return err
	}
	errs := append(p.five.problems(), p.group.problems()...)
	for i := range p.captures {
		errs = append(errs, p.captures[i].problems()...)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("it does not add up: %w", err)
	}
	fmt.Fprint(s.Out, `
It adds up: sent = captured + lost, every captured packet is in the files, and each reader
found all of them; every byte that went through the five flows is what was sent; and every
message that the group acknowledged is once in the log of each member. Nothing is left
behind: namespaces, programs, files and the huge pages that had to be reserved are gone.
`)
	if s.Keep {
		fmt.Fprintf(s.Out, "The captures and logs were kept in %s.\n", s.dir)
	}
	return nil
}
