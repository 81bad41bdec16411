package privsep

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/files"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/umem"
)

// For returns what a daemon with this configuration needs.
func For(c *config.Config) Options {
	o := Options{User: c.User, Keep: needed(c), Sockets: []string{c.Control.Socket}, Steering: afxdp.SteeringDir(c), Files: files.Of(c)}
	o.Dirs = append(o.Dirs, filepath.Dir(c.Control.Socket))
	if len(c.Attach.Programs) > 0 {
		o.Sockets = append(o.Sockets, c.Attach.Socket)
		if dir := filepath.Dir(c.Attach.Socket); !slices.Contains(o.Dirs, dir) {
			o.Dirs = append(o.Dirs, dir)
		}
	}
	if c.Trace.Directory != "" {
		o.Dirs = append(o.Dirs, filepath.Dir(c.Trace.Directory))
	}
	for _, f := range c.Flows {
		if f.From.Beside != "" {
			o.Keep, o.Joins = o.Keep|Joining, true
		}
		switch name, group, _ := strings.Cut(f.To.Owner, ":"); {
		case name != "" && name != c.User:
			o.Keep |= Giving
		case group != "" && c.User == "": // only a user other than root must be in the group
			o.Keep |= caps.Chown
		}
		switch dir := filepath.Dir(f.To.File); {
		case f.To.File == "":
		case f.To.Create:
			o.Dirs = append(o.Dirs, dir)
		default:
			o.Existing = append(o.Existing, dir)
		}
	}
	o.allocates(c)
	return o
}

// allocates has the process before the change of user allocate the region's memory, if that takes its rights: to reserve
// huge pages, or to open a device.
func (o *Options) allocates(c *config.Config) {
	reserve := c.Region.Reserve && c.Region.Pages != config.PagesOrdinary
	if !reserve && c.Region.Device == "" {
		return
	}
	region := flows.RegionConfig(c)
	o.Region, o.Free = &region, !reserve
}

// needed returns the capabilities for the flows of a configuration. Packet sockets take NET_RAW alone, IPC_LOCK
// where the limit of locked memory is too low and nobody may raise it, and NET_ADMIN for times of the card's clock.
func needed(c *config.Config) caps.Set {
	locked, more := uint64(c.Region.Size)+lockedBeside, caps.Set(0)
	for i := range c.Flows {
		f := &c.Flows[i]
		if e, _ := f.ChosenEngine(); f.Kind() != config.KindNetworkStorage || e != config.EnginePacket {
			return Needed
		}
		if f.From.Timestamps != config.TimestampsSoftware {
			more = caps.NetAdmin // to have the card stamp packets
		}
		locked += uint64(f.From.Buffer)
	}
	self, err := caps.Self()
	var l unix.Rlimit
	if err == nil && self.Effective.Has(caps.SysResource) || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil && l.Max >= locked {
		return caps.NetRaw | more
	}
	return caps.NetRaw | caps.IPCLock | more
}

// lockedBeside is more than the memory that flows lock besides the region and the rings of packet sockets.
const lockedBeside = 16 << 20

// raiseLimit raises the limit of locked memory as far as the process may. Where it stays too low, opening a
// flow says so.
func raiseLimit() {
	var l unix.Rlimit
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}) == nil || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) != nil {
		return
	}
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: l.Max, Max: l.Max})
}

// ForCommand returns what a command that captures or replays needs. It has no control socket and
// makes no directories. user is the user of -Z. User 0 may write and read the files of all users,
// as the caller of -Z root expects.
func ForCommand(c *config.Config, user string) Options {
	o := Options{User: user, Keep: needed(c), Announce: true}
	uid := os.Geteuid()
	if u, err := lookUp(user); err == nil && u != nil { // Start reports a wrong name
		uid = int(u.uid)
		if uid == 0 {
			o.Keep |= caps.DACOverride
		}
	}
	for _, f := range c.Flows {
		if f.From.Beside != "" {
			o.Keep, o.Joins = o.Keep|Joining, true
		}
		if f.To.Exact && f.To.Rotate == (config.Rotate{}) {
			o.File = f.To.File
		}
		if f.From.Steer != "" {
			o.Steering = CommandNotes(uid)
			o.Dirs = []string{o.Steering}
		}
	}
	o.allocates(c)
	return o
}

// ForTransfer returns what a command needs that sends or receives files over an RDMA device. Only a device in software
// takes more rights than to lock memory. user is the user of -Z. User 0 may read and write the files of all users.
func ForTransfer(device string, region *umem.Config, user string) Options {
	o := Options{User: user, Keep: caps.IPCLock, Announce: true}
	if _, soft := providers.Soft(device); soft {
		o.Keep = Needed
	}
	uid := os.Geteuid()
	if u, err := lookUp(user); err == nil && u != nil { // Start reports a wrong name
		uid = int(u.uid)
	}
	if uid == 0 {
		o.Keep |= caps.DACOverride
	}
	if region.Pages != umem.Ordinary {
		o.Region = region
	}
	return o
}

// CommandNotes is the directory where commands of a user record their rules in cards. The daemon's
// directory may belong to another user.
func CommandNotes(uid int) string { return "/run/unifiedd-command-" + strconv.Itoa(uid) }

// DefaultUser returns the user that a command becomes without -Z: the caller of sudo(8), or the
// daemon's user if it exists. If it is empty, the command keeps its user. It is always empty unless
// root starts the command, and in a user namespace that has neither.
func DefaultUser() string {
	self, err := caps.Self()
	if err != nil || self.UID.Effective != 0 || changes(&identity{}).Minus(self.Effective) != 0 {
		return ""
	}
	if number, ok := userNumber(os.Getenv("SUDO_UID")); ok && number != 0 {
		if u, err := lookUpNumber(number); err == nil && u.mapped() {
			return strconv.FormatUint(uint64(number), 10)
		}
	}
	if u, err := lookUp(daemonUser); err == nil && u.mapped() {
		return daemonUser
	}
	return ""
}

// daemonUser is the user that distribution packages create for the daemon.
const daemonUser = "unifiedd"
