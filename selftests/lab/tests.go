package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/selftests/lab/vm"
	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// session runs suites in one guest. After a guest dies, it boots another.
type session struct {
	*lab
	report *report
	share  string // directory of the test programs
	guest  *vm.Guest
	err    error // of all so far
}

// tests runs the tests for the lab, package by package.
func (l *lab) tests(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "unifiedd-lab-")
	if err != nil {
		return fmt.Errorf("make a directory for the test programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	suites, err := l.suites(ctx, dir)
	if err != nil {
		return err
	}
	s := &session{lab: l, share: dir, report: &report{out: os.Stdout, events: l.json, line: l.Kernel.Line.Name}}
	s.report.begin()
	for _, suite := range suites {
		if ctx.Err() != nil {
			break
		}
		s.suite(ctx, suite)
	}
	s.close()
	s.report.end()
	return errors.Join(s.err, ctx.Err())
}

// suites finds the tests to run, and builds them.
func (l *lab) suites(ctx context.Context, dir string) ([]suite, error) {
	found, err := findSuites(ctx, l.packages)
	if err != nil {
		return nil, err
	}
	run, inside, _ := strings.Cut(l.run, "/")
	match, err := regexp.Compile(run)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	var suites []suite
	for _, s := range found {
		s.keep(match, inside)
		if len(s.tests) == 0 {
			continue
		}
		if err := s.build(ctx, dir); err != nil {
			return nil, fmt.Errorf("%w: %w", errOurs, err)
		}
		suites = append(suites, s)
	}
	if len(suites) == 0 {
		return nil, fmt.Errorf("%w: no test matches", errUsage)
	}
	return suites, nil
}

// suite runs one package's tests. After a fault of the guest the next package gets another guest.
func (s *session) suite(ctx context.Context, t suite) {
	result, err := s.run(ctx, t)
	if errors.Is(err, errNoGuest) {
		return
	}
	if err == nil {
		err = judge("the tests of "+t.ImportPath, result, nil)
	}
	s.fail(err)
	if errors.Is(err, errOurs) {
		err = nil // the tests have reported it themselves
	}
	s.report.test("KernelLog/"+shortPath(t.ImportPath), err)
	if s.guest != nil {
		s.report.test("Cards/"+shortPath(t.ImportPath), s.cardsAtRest())
	}
}

// atRest prints what the cards still have of tests: programs, promiscuous mode, or another namespace, where it does not
// see them. The kernel returns
// the cards of a namespace some time after its end.
const atRest = `for card in igb0 igb1 virtio0 virtio1; do
	for try in $(seq 100); do
		[ -e /sys/class/net/$card ] && break
		sleep 0.1
	done
	now=$(ip -o -d link show dev $card) || { echo "$card is not there"; continue; }
	case $now in *"promiscuity 0 "*) ;; *) echo "$card is promiscuous: $now" ;; esac
	case $now in *xdp*) echo "$card has a program: $now" ;; esac
done`

// cardsAtRest fails if a package's tests have not given the cards back as they were: the next
// package's tests would fail for that.
func (s *session) cardsAtRest() error {
	var said bytes.Buffer
	c := s.command("sh", "-c", atRest+" 2>&1")
	result, err := s.guest.Run(c, &said)
	if err != nil {
		s.close()
		return err
	}
	if err := judge("the look at the cards", result, nil); err != nil {
		return err
	}
	if said.Len() > 0 {
		return fmt.Errorf("%w: %s", errOurs, &said)
	}
	return nil
}

// errNoGuest means that no guest booted, which boot has reported.
var errNoGuest = errors.New("there is no guest")

// run runs the tests of a package in the guest, and boots one if there is none.
func (s *session) run(ctx context.Context, t suite) (result vm.Result, err error) {
	if s.guest == nil && !s.boot(ctx) {
		return result, errNoGuest
	}
	out, closeOut, err := s.report.converter(ctx, t.ImportPath)
	if err != nil {
		return result, err
	}
	result, err = s.guest.Run(s.testCommand(t), out)
	s.fail(closeOut())
	if err != nil {
		s.close()
	}
	return result, err
}

// boot boots a guest for the next suites.
func (s *session) boot(ctx context.Context) bool {
	g, err := s.lab.boot(ctx, vm.Config{Host: 1, Shares: []string{s.share}})
	if err == nil {
		s.guest = g
		err = judge("the guest's start", vm.Result{}, g.Complaints)
	}
	s.report.test("Boot", err)
	s.fail(err)
	return s.guest != nil
}

func (s *session) fail(err error) { s.err = errors.Join(s.err, err) }

// close ends the guest, if there is one.
func (s *session) close() {
	if s.guest != nil {
		s.fail(s.guest.Close())
		s.guest = nil
	}
}

// margin is the time that a test program has to print its stacks.
const margin = 15 * time.Second

func (s *session) testCommand(t suite) wire.Command {
	verbose := "-test.v"
	if s.json {
		verbose += "=test2json"
	}
	c := s.command(t.binary, verbose, "-test.paniconexit0", "-test.run", t.pattern(), "-test.timeout", (s.limit - margin).String())
	c.Dir, c.Env = t.Dir, append(c.Env, "UNIFIEDD_LAB_PROGRAMS="+s.share)
	if s.short {
		c.Args = append(c.Args, "-test.short")
	}
	return c
}

// shortPath returns an import path without the module's path.
func shortPath(path string) string { return strings.TrimPrefix(path, module+"/") }
