package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/netnsdir"
)

// groupText is the configuration of one member, as a user would write it.
const groupText = `# One of three daemons that keep one log: see docs/how-to/groups.md.
region: {size: %[1]s, pages: ordinary}
control: {socket: %[2]q}
flows:
  - name: orders
    from: {rdma: "roce:%[3]s", listen: %[4]q, message: 1KiB, clients: 4, window: 64}
    to:
      file: %[5]q
      acknowledge: durable
      segment: {size: 16MiB}
      group: {name: orders, self: %[6]s, members: [%[7]s]}
`

const (
	groupRegion = 64 * config.MiB
	groupSeed   = "6"
	groupSize   = "1000"
	// groupRate is how many messages a second the client appends, and groupCount how many in all. The leader
	// is killed when groupKill are committed: then there is load for some seconds more.
	groupRate, groupCount, groupKill = 1000, 4000, 1500

	recordsPort   = 7471
	electionsPort = 7491
)

// groupNames are the names of the members. The client is at the next address.
var groupNames = []string{"a", "b", "c"}

// group is one run of three daemons that keep one log. The leader is killed while a client appends.
type group struct {
	*stage
	members  []*member
	killed   *member // it led
	next     *member // it led when the client was done
	appended heard
}

// member is one of the daemons.
type member struct {
	name   string
	ns     *namespace
	dir    string
	daemon *daemon
	status status.Group // when it was last asked
	found  heard        // in its log
}

// showGroup runs the group.
func (s *stage) showGroup(ctx context.Context) (g *group, err error) {
	fmt.Fprintf(s.Out, `
Then three daemons, each in a network namespace, keep one log. A client appends %d messages a second. They are
acknowledged when two of the three have them on the disk. While it appends, the leader is killed (SIGKILL).
`, groupRate)
	g = &group{stage: s}
	if err := s.makeSwitch(len(groupNames) + 1); err != nil {
		return nil, err
	}
	if err = g.run(ctx); err != nil {
		err = errors.Join(err, g.trouble())
	}
	for _, m := range g.members {
		if m.daemon != nil {
			err = errors.Join(err, m.daemon.stop())
		}
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(s.Out, "  the group: everything is acknowledged, and the killed member has caught up; reading the three logs back")
	return g, g.readBack(ctx)
}

// run starts the members, appends, kills the leader, and starts it again.
func (g *group) run(ctx context.Context) error {
	for i, name := range groupNames {
		m := &member{name: name, ns: g.switched[i], dir: filepath.Join(g.dir, "member-"+name)}
		g.members = append(g.members, m)
		if err := m.prepare(i); err != nil {
			return err
		}
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	if _, err := g.leader(ctx, 0); err != nil {
		return err
	}
	if err := g.append(ctx); err != nil {
		return err
	}
	if err := g.killed.start(ctx); err != nil {
		return err
	}
	return g.together(ctx)
}

// append runs the client, and kills the leader meanwhile.
func (g *group) append(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var said []heard
	ended := make(chan error, 1)
	go func() {
		var err error
		if said, err = runFlowTest(ctx, g.FlowTest, netnsdir.Path(g.switched[len(groupNames)].name), g.command()...); err != nil {
			fail(err)
		}
		ended <- err
	}()
	err := g.kill(ctx)
	if err != nil {
		fail(err)
	}
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	g.appended = said[0]
	g.next, err = g.leader(ctx, 0)
	return err
}

// command returns the client's command line. The client knows all members.
func (g *group) command() []string {
	var to []string
	for i := range groupNames {
		to = append(to, switched.at(byte(i+1), recordsPort))
	}
	return []string{"append", "-to", strings.Join(to, ","), "-flow", "orders", "-seed", groupSeed, "-size", groupSize,
		"-count", strconv.Itoa(groupCount), "-rate", strconv.Itoa(groupRate), "-device", "roce:" + switched.name, "-ordinary", "-receive-ring", "512"}
}

// kill kills the member that leads, when some messages are committed.
func (g *group) kill(ctx context.Context) (err error) {
	if g.killed, err = g.leader(ctx, groupKill); err != nil {
		return err
	}
	g.killed.daemon.kill()
	g.killed.daemon = nil
	return nil
}

// leader waits until a member leads and has committed a position. It returns the member.
func (g *group) leader(ctx context.Context, committed uint64) (who *member, err error) {
	await(ctx, startLimit, func() bool {
		for _, m := range g.members {
			if m.look(ctx) == nil && m.status.State == leading && m.status.Committed >= committed {
				who = m
			}
		}
		return who != nil
	})
	if who == nil {
		return nil, errors.Join(fmt.Errorf("no member led and had committed position %d after %v", committed, startLimit), context.Cause(ctx))
	}
	return who, nil
}

// together waits until all members have everything as committed.
func (g *group) together(ctx context.Context) error {
	all := false
	await(ctx, startLimit, func() bool {
		all = true
		for _, m := range g.members {
			all = m.look(ctx) == nil && m.status.Committed >= g.appended.Position && all
		}
		return all
	})
	if !all {
		var has []string
		for _, m := range g.members {
			has = append(has, fmt.Sprintf("%s is %s in epoch %d and has %d of %d", m.name, m.status.State, m.status.Epoch, m.status.Committed, m.status.Last))
		}
		return errors.Join(fmt.Errorf("not every member has position %d after %v: %s", g.appended.Position, startLimit, strings.Join(has, "; ")), context.Cause(ctx))
	}
	return nil
}

// trouble returns an error with the output of all daemons.
func (g *group) trouble() error {
	var errs []error
	for _, m := range g.members {
		if m.daemon != nil {
			errs = append(errs, fmt.Errorf("member %s: %w", m.name, m.daemon.trouble()))
		}
	}
	return errors.Join(errs...)
}

// readBack verifies the log of each member.
func (g *group) readBack(ctx context.Context) error {
	for _, m := range g.members {
		said, err := runFlowTest(ctx, g.FlowTest, "", "log", "-file", m.log(), "-seed", groupSeed)
		if err != nil {
			return fmt.Errorf("member %s: %w", m.name, err)
		}
		m.found = said[0]
	}
	return nil
}

// leading is the state of a member that leads and accepts clients.
const leading = "leading"

func (m *member) log() string { return filepath.Join(m.dir, "orders") }

// prepare writes the member's configuration.
func (m *member) prepare(i int) error {
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return err
	}
	var all []string
	for n, name := range groupNames {
		all = append(all, fmt.Sprintf("{name: %s, address: %q, clients: %q}", name, switched.at(byte(n+1), electionsPort), switched.at(byte(n+1), recordsPort)))
	}
	text := fmt.Sprintf(groupText, groupRegion, m.socket(), switched.name, switched.at(byte(i+1), recordsPort), m.log(), m.name, strings.Join(all, ", "))
	return os.WriteFile(m.file(), []byte(text), 0o600)
}

func (m *member) file() string   { return filepath.Join(m.dir, "unifiedd.yaml") }
func (m *member) socket() string { return filepath.Join(m.dir, "control.sock") }

// start starts the member's daemon.
func (m *member) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if m.daemon, err = startDaemon(ctx, self, netnsdir.Path(m.ns.name), m.file(), m.socket()); err != nil {
		return fmt.Errorf("member %s: %w", m.name, err)
	}
	return nil
}

// look reads the member's status.
func (m *member) look(ctx context.Context) error {
	if m.daemon == nil {
		return errors.New("it does not run")
	}
	s, err := m.daemon.status(ctx)
	if err != nil {
		return err
	}
	if len(s.Flows) != 1 || s.Flows[0].Group == nil {
		return errors.New("it has no group")
	}
	m.status = *s.Flows[0].Group
	return nil
}
