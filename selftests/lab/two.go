package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/unifiedd/unifiedd/selftests/lab/kit"
	"github.com/unifiedd/unifiedd/selftests/lab/vm"
)

// two runs a command in each of two guests at the same time. A wire joins the guests.
func (l *lab) two(ctx context.Context) error {
	var guests [2]*vm.Guest
	err := l.Again(ctx, kit.Attempts, func() (err error) {
		guests, err = l.bootTwo(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(l.talk(guests), closeAll(guests))
}

// bootTwo boots both guests or none.
func (l *lab) bootTwo(ctx context.Context) (guests [2]*vm.Guest, err error) {
	ends, err := vm.Link()
	if err != nil {
		return guests, err
	}
	err = both(func(n int) (err error) {
		guests[n], err = l.boot(ctx, vm.Config{Host: n + 1, Link: ends[n]})
		return err
	})
	if err != nil {
		err = errors.Join(err, closeAll(guests))
	}
	return guests, err
}

func closeAll(guests [2]*vm.Guest) (err error) {
	for _, g := range guests {
		if g != nil {
			err = errors.Join(err, g.Close())
		}
	}
	return err
}

// talk runs the commands. Each line of output names its guest.
func (l *lab) talk(guests [2]*vm.Guest) error {
	var mu sync.Mutex
	return both(func(n int) error {
		name := string(rune('1' + n))
		out := &prefixed{prefix: name + "| ", to: os.Stdout, mu: &mu}
		c := l.shell([]string{l.cmd, l.cmd2}[n])
		c.Env = append(c.Env, "UNIFIEDD_LAB_HOST="+name)
		r, err := guests[n].Run(c, out)
		if err = errors.Join(err, out.flush()); err != nil {
			return err
		}
		return judge("the command in guest "+name, r, guests[n].Complaints)
	})
}

// both runs f with 0 and 1 at the same time.
func both(f func(n int) error) error {
	var errs [2]error
	var wg sync.WaitGroup
	for n := range errs {
		wg.Go(func() { errs[n] = f(n) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// prefixed writes whole lines, each with a prefix.
type prefixed struct {
	prefix string
	to     io.Writer
	mu     *sync.Mutex // of to
	rest   []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, ok := bytes.Cut(p.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.rest = rest
		if err := p.line(line); err != nil {
			return 0, err
		}
	}
}

func (p *prefixed) line(line []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := io.WriteString(p.to, p.prefix+string(line)+"\n")
	return err
}

// flush writes a last line that has no newline.
func (p *prefixed) flush() error {
	if len(p.rest) == 0 {
		return nil
	}
	defer func() { p.rest = nil }()
	return p.line(p.rest)
}
