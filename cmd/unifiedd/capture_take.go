package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/hostroute"
	"github.com/unifiedd/unifiedd/internal/printable"
)

// Values of --take.
const (
	takePackets = "yes"
	takeAnyway  = "anyway"
)

// onlyXDP are the flags that only AF_XDP sockets have. Those that are true work with copies, too.
var onlyXDP = map[string]bool{
	"ring": true, "zero-copy": true, "layout": true, "queues": false, "steer": false, "beside": false, "priority": false,
}

// setEngine sets whether packets are copied or taken, by which engine, and in which direction.
func (f *captureFlags) setEngine(from *config.From, given func(flag string) bool) (err error) {
	take := f.take != ""
	switch {
	case take && f.take != takePackets && f.take != takeAnyway:
		return fmt.Errorf("--take: %q is not known (give --take, or --take=anyway)", f.take)
	case take && f.direction != "":
		return errors.New("-Q, --direction: --take has packets that arrive, and no others (leave one of the two out)")
	case take && f.engine == string(config.EnginePacket):
		return errors.New("--engine packet has copies, and --take takes the packets (leave one of the two out)")
	case f.engine != "" && f.engine != string(config.EnginePacket) && f.engine != string(config.EngineXDP):
		return fmt.Errorf("--engine: %q is not known (give packet or xdp)", f.engine)
	}
	if err := f.needTake(given); err != nil {
		return err
	}
	if from.Mirror, err = f.copies(); err != nil {
		return err
	}
	from.Engine, from.TakeOver = config.EnginePacket, f.take == takeAnyway
	if take || f.engine == string(config.EngineXDP) {
		from.Engine = config.EngineXDP
	}
	if f.buffer != "" {
		if from.Buffer, err = config.ParseSize(f.buffer); err != nil {
			return fmt.Errorf("--buffer-size: %w", err)
		}
	}
	return nil
}

// needTake refuses flags that copies do not have.
func (f *captureFlags) needTake(given func(flag string) bool) error {
	if f.take != "" {
		return nil
	}
	if len(f.ifaces) > 1 {
		return errors.New("-i: copies are of one interface (capture each by a command of its own, and mergecap has one file of all; or --take takes the packets of several from the host)")
	}
	for flag, copied := range onlyXDP {
		switch {
		case !given(flag):
		case !copied:
			return fmt.Errorf("--%s: only packets that are taken from the host have it (leave it out, or add --take)", flag)
		case f.engine != string(config.EngineXDP):
			return fmt.Errorf("--%s: the packet engine does not have it (leave it out; or add --engine xdp for copies, or --take to take the packets from the host)", flag)
		}
	}
	return nil
}

// copies returns of which direction copies are made; empty: packets are taken.
func (f *captureFlags) copies() (config.Mirror, error) {
	if f.take != "" {
		return "", nil
	}
	switch f.direction {
	case "", "inout":
		return config.MirrorBoth, nil
	case "in":
		return config.MirrorIngress, nil
	case "out":
		return config.MirrorEgress, nil
	}
	return "", fmt.Errorf("-Q, --direction: %q is not known (give in, out or inout)", f.direction)
}

// errCutOff is matched when a capture would take packets that the host, or its user, depends on.
var errCutOff = errors.New("nothing was captured")

// checkTake refuses to take packets of an interface that the host or the user's session depends on.
func (f *captureFlags) checkTake() error {
	if f.take != takePackets {
		return nil
	}
	for _, name := range f.ifaces {
		why, err := dependsOn(name)
		if err != nil {
			return err
		}
		if why != "" {
			return fmt.Errorf("%w: --take takes packets away from the host, and %s %s (leave --take out to have copies, or say --take=anyway)", errCutOff, printable.Text(name), why)
		}
	}
	return nil
}

// dependsOn says what needs the packets of an interface; empty: nothing that is known.
func dependsOn(name string) (why string, err error) {
	if i, err := net.InterfaceByName(name); err == nil && i.Flags&net.FlagLoopback != 0 { // opening it reports the error
		return "carries what programs of this host send to each other", nil
	}
	switch carries, err := hostroute.Default(name); {
	case err != nil:
		return "", err
	case carries:
		return "carries the default route", nil
	}
	peer, own, is := sshSession()
	if !is {
		return "", nil
	}
	switch carries, err := hostroute.Between(name, own, peer); {
	case err != nil:
		return "", err
	case carries:
		return "carries your SSH session from " + peer.String(), nil
	}
	return "", nil
}

// sshSession returns the two ends of the SSH connection that this process belongs to. sudo(8) removes the variable, so
// the processes above are asked, too.
func sshSession() (peer, own netip.Addr, is bool) {
	const variable = "SSH_CONNECTION="
	text := os.Getenv(strings.TrimSuffix(variable, "="))
	for pid := os.Getppid(); text == "" && pid > 1; pid = parentOf(pid) {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue // it belongs to another user
		}
		all := bytes.Split(environ, []byte{0})
		if i := slices.IndexFunc(all, func(v []byte) bool { return bytes.HasPrefix(v, []byte(variable)) }); i >= 0 {
			text = strings.TrimPrefix(string(all[i]), variable)
		}
	}
	words := strings.Fields(text)
	if len(words) != 4 {
		return peer, own, false
	}
	peer, err1 := netip.ParseAddr(words[0])
	own, err2 := netip.ParseAddr(words[2])
	return peer, own, err1 == nil && err2 == nil
}

// parentOf returns the parent of a process; 0: it is not known.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]), " ") // the name may have anything
	words := strings.Fields(rest)
	if len(words) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(words[1]) // 0 where it is no number
	return n
}

// equivalents say what to do for flags of tcpdump, and of earlier versions, that the command does not have.
var equivalents = map[string]string{
	"v": asText, "X": asText, "A": asText, "e": asText, "x": asText, "t": asText,
	"r":         "a capture has packets of an interface; unifiedd export -r FILE filters a file, and tcpdump -r FILE prints it",
	"l":         "nothing is printed that could wait; with -w - packets are written as soon as a block is full, or after 500ms",
	"U":         "packets are written as soon as a block is full, or after 500ms",
	"B":         "write --buffer-size SIZE, such as 64MiB",
	"mirror":    "copies are the default; -Q in or -Q out for one direction, --engine xdp for copies as on the wire",
	"take-over": "write --take=anyway",
}

const asText = "packets are not printed as text; pipe them into a program that does: unifiedd capture -i INTERFACE -w - | tcpdump -r -"

// explainHabit says what to write in place of a flag that the command does not have.
func explainHabit(c *cobra.Command, err error) error {
	if unknown, is := errors.AsType[*pflag.NotExistError](err); is {
		if instead := equivalents[unknown.GetSpecifiedName()]; instead != "" {
			return fmt.Errorf("%w (%s)", err, instead)
		}
	}
	return explainValue(c, err)
}

// explainOccupied says that a flow of the daemon has the interface, if that is why a capture cannot take its packets.
func explainOccupied(ctx context.Context, err error, ifaces []string) error {
	if !errors.Is(err, bpf.ErrOccupied) {
		return err
	}
	taken := takenByDaemon(ctx)
	for _, name := range ifaces {
		if who := taken[name]; who != "" {
			return fmt.Errorf("%s, takes the packets of %s: add another flow to its configuration, or leave --take out to have copies (%w)", who, name, err)
		}
	}
	return err
}

// takenByDaemon names the flows of the daemon that take packets, by their interfaces. It is empty if there is no daemon, or
// if it does not answer to this user.
func takenByDaemon(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	raw, err := control.Status(ctx, daemonSocket())
	var s status.Daemon
	if err != nil || decode(raw, &s) != nil {
		return nil
	}
	taken := map[string]string{}
	for i := range s.Flows {
		if one := &s.Flows[i]; one.State.Up() && one.Engine == string(config.EngineXDP) && one.Mirrors == nil {
			taken[one.From] = fmt.Sprintf("flow %s of the daemon, process %d", one.Name, s.PID)
		}
	}
	return taken
}
