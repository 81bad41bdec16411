package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/unifiedd/unifiedd/flows/config"
)

// Options are what a demo is told.
type Options struct {
	Out     io.Writer
	Log     *slog.Logger
	Version string
	Dir     string // where captures go for the time of the demo; on a disk
	Keep    bool   // leave the captures there
	Load    func(file string) (*config.Config, error)
}

// layouts are shown one after the other.
var layouts = []config.Layout{config.LayoutPacked, config.LayoutSlot}

// Run shows the demo. It returns an error when something did not work, did not add
// up, or was left behind.
func Run(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("the demo makes network namespaces and attaches a program to an interface, which takes root: sudo unifiedd demo")
	}
	if err := findTools(); err != nil {
		return err
	}
	rec, err := openRecord(ctx, o.Out)
	if err != nil {
		return err
	}
	s := &stage{Options: o, record: rec}
	results, err := s.play(ctx)
	left := s.clear()
	if ctx.Err() != nil {
		return errors.Join(errors.New("the demo was interrupted; what it had made was taken back"), left)
	}
	if err := errors.Join(err, left); err != nil {
		return err
	}
	return s.judge(results)
}

// play sets the stage and captures once in each layout.
func (s *stage) play(ctx context.Context) ([]result, error) {
	fmt.Fprintf(s.Out, `Two network namespaces, joined by a veth pair. In one, trafgen sends %d UDP packets of
%s bytes, one every %d µs. In the other, unifiedd captures them
("%s") to disk, while the kernel there goes on answering ping.
`, packets, sizeList(), gap, filterText)
	if err := s.set(); err != nil {
		return nil, err
	}
	var results []result
	for _, l := range layouts {
		r, err := s.capture(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("%s layout: %w", l, err)
		}
		fmt.Fprintf(s.Out, "  %s layout: captured; reading the files back\n", l)
		if err := r.readBack(ctx); err != nil {
			return nil, fmt.Errorf("%s layout: %w", l, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// judge prints the table and says whether everything adds up.
func (s *stage) judge(results []result) error {
	if err := table(s.Out, results); err != nil {
		return err
	}
	var errs []error
	for i := range results {
		errs = append(errs, results[i].problems()...)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("it does not add up: %w", err)
	}
	fmt.Fprintf(s.Out, `
It adds up: sent = captured + lost, every captured packet is in the files, and each reader
found all of them. Nothing is left behind: namespaces, program, files and the %d huge pages
that had to be reserved are gone.
`, s.added)
	if s.Keep {
		fmt.Fprintf(s.Out, "The captures were kept in %s.\n", s.dir)
	}
	return nil
}
