package card

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/netdev"
)

// Setting is a setting of a card, or a few that one command of ethtool sets.
type Setting string

// The settings, in the order in which they are set: the number of queues may change each of the others.
const (
	Channels   Setting = "ethtool -L"        // how many queues
	Rings      Setting = "ethtool -G"        // descriptors of each receive ring
	Coalescing Setting = "ethtool -C"        // how long an interrupt waits for further packets
	Affinity   Setting = "smp_affinity_list" // processors of the interrupts: one list for all, or one for each
)

// order has all settings in the order in which they are set.
var order = []Setting{Channels, Rings, Coalescing, Affinity}

// Order returns all settings in the order in which they are set.
func Order() []Setting { return slices.Clone(order) }

// Settings has the values of some settings.
type Settings map[Setting]string

// Absent is a setting that a card has not, or that cannot be changed here.
type Absent struct {
	Setting Setting `json:"setting"`
	Why     string  `json:"why"`
}

// ErrRights says that the process may not change the card.
var ErrRights = errors.New("this takes CAP_NET_ADMIN in the interface's user namespace (run it as root)")

// Card is a network interface whose settings are read and changed.
type Card struct {
	Name   string // the one in front of the alternative names
	Driver string // empty: the kernel does not say

	index   int
	bus     string // address of its PCI function; empty: it is none
	carried bool   // it had a link when it was found
}

// Find looks a card up.
func Find(name string) (*Card, error) {
	d, err := netdev.Find(name)
	if err != nil {
		return nil, err
	}
	c := &Card{Name: d.Name, index: d.Index}
	if c.carried, err = c.carries(); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket for ethtool: %w", err)
	}
	defer unix.Close(fd)
	if info, err := unix.IoctlGetEthtoolDrvinfo(fd, d.Name); err == nil { // a driver need not say
		c.Driver, c.bus = unix.ByteSliceToString(info.Driver[:]), unix.ByteSliceToString(info.Bus_info[:])
	}
	return c, nil
}

// Probe returns the settings that the process can change, with their present values, and of the others why it cannot. The
// error matches [ErrRights] if only rights are missing.
func (c *Card) Probe() (Settings, []Absent, error) {
	have, absent := Settings{}, []Absent(nil)
	for _, which := range order {
		value, err := c.read(which)
		if err == nil {
			err = c.write(which, value)
		}
		switch {
		case err == nil:
			have[which] = value
		case errors.Is(err, unix.EPERM) && which != Affinity:
			return nil, nil, fmt.Errorf("%s of %s: %w", which, c.Name, ErrRights)
		default:
			absent = append(absent, Absent{which, c.explain(err).Error()})
		}
	}
	return have, absent, nil
}

// Read returns the present values of the settings that are in want.
func (c *Card) Read(want Settings) (Settings, error) {
	have := Settings{}
	for which := range want {
		value, err := c.read(which)
		if err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", which, c.Name, c.explain(err))
		}
		have[which] = value
	}
	return have, nil
}

// Set gives settings the values in want, and reports whether any of them had another one. After an error it has gone on
// with the others.
func (c *Card) Set(want Settings) (changed bool, err error) {
	for _, which := range order {
		value, is := want[which]
		if !is {
			continue
		}
		did, e := c.setOne(which, value)
		changed, err = changed || did, errors.Join(err, e)
	}
	if err != nil {
		return changed, err
	}
	return changed, c.Verify(want)
}

func (c *Card) setOne(which Setting, value string) (changed bool, err error) {
	now, err := c.read(which)
	if err == nil && now == value {
		return false, nil
	}
	if err == nil {
		err = c.writeRetrying(which, value)
	}
	if err != nil {
		return false, fmt.Errorf("set %s of %s to %q: %w", which, c.Name, value, c.explain(err))
	}
	return true, nil
}

// ErrOther says that a setting has another value than the one that it was given.
var ErrOther = errors.New("it has another value than it was given (does a program such as irqbalance or tuned set it, too? stop it meanwhile)")

// Verify returns an error that matches [ErrOther] if a setting has not the value in want.
func (c *Card) Verify(want Settings) error {
	have, err := c.Read(want)
	if err != nil {
		return err
	}
	for _, which := range order {
		if have[which] != want[which] {
			return fmt.Errorf("%s of %s is %q, not %q: %w", which, c.Name, have[which], want[which], ErrOther)
		}
	}
	return nil
}

func (c *Card) read(which Setting) (string, error) {
	if which == Affinity {
		return c.readAffinity()
	}
	return c.readGroup(groups[which])
}

func (c *Card) write(which Setting, value string) error {
	if which == Affinity {
		return c.writeAffinity(value)
	}
	return c.writeGroup(groups[which], value)
}

// closing is for how long the kernel may keep an AF_XDP socket's place at its queue after the socket was closed (a kernel
// thread gives it back: xp_put_pool in net/xdp/xsk_buff_pool.c).
const closing = time.Second

// writeRetrying sets a value, and tries again for a moment. The kernel takes no queue away while an AF_XDP socket has its place there, and gives the same
// error as for a value that the driver does not have.
func (c *Card) writeRetrying(which Setting, value string) error {
	for end := time.Now().Add(closing); ; time.Sleep(linkPoll / 5) {
		err := c.write(which, value)
		if which != Channels || !errors.Is(err, unix.EINVAL) || time.Now().After(end) {
			return err
		}
	}
}

// explain says in words what an error of a setting means, if it is one of the driver's.
func (c *Card) explain(err error) error {
	errno, is := errors.AsType[unix.Errno](err)
	says := map[unix.Errno]string{
		unix.EOPNOTSUPP: "has no such setting",
		unix.EINVAL:     "refuses this value",
		unix.ERANGE:     "refuses this value",
		unix.EBUSY:      "does not change this while the interface is used",
	}[errno]
	if !is || says == "" {
		return err
	}
	return fmt.Errorf("the driver %s %s (%w)", cmp.Or(c.Driver, "of the interface"), says, errno)
}

// Times of a link. Some cards have a link right after a reset, and lose it again while they negotiate the speed.
const (
	settled  = time.Second
	linkWait = 20 * time.Second
	linkPoll = 50 * time.Millisecond
)

// Settle waits until the card has had a link for a second, if it had one when it was found.
func (c *Card) Settle(ctx context.Context) error {
	if !c.carried {
		return nil
	}
	tick := time.NewTicker(linkPoll)
	defer tick.Stop()
	begun, since := time.Now(), time.Time{}
	for {
		up, err := c.carries()
		switch now := time.Now(); {
		case err != nil:
			return err
		case up && since.IsZero():
			since = now
		case up && now.Sub(since) >= settled:
			return nil
		case !up && now.Sub(begun) >= linkWait:
			return fmt.Errorf("the link of %s is not back %v after its settings were changed", c.Name, linkWait)
		case !up:
			since = time.Time{}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// carries reports whether the card has a link.
func (c *Card) carries() (bool, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("link of %s: open netlink: %w", c.Name, err)
	}
	defer h.Close()
	link, err := h.LinkByIndex(c.index)
	if err != nil {
		return false, fmt.Errorf("link of %s: %w", c.Name, err)
	}
	const carries = unix.IFF_LOWER_UP | unix.IFF_RUNNING
	return link.Attrs().RawFlags&carries == carries, nil
}
