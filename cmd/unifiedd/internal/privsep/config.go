package privsep

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/files"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	"github.com/unifiedd/unifiedd/internal/caps"
)

// For returns what a daemon with this configuration needs.
func For(c *config.Config) Options {
	o := Options{User: c.User, Keep: Needed, Sockets: []string{c.Control.Socket}, Steering: afxdp.SteeringDir(c), Files: files.Of(c)}
	o.Dirs = append(o.Dirs, filepath.Dir(c.Control.Socket))
	for _, f := range c.Flows {
		if f.From.Beside != "" {
			o.Keep, o.Joins = o.Keep|Joining, true
		}
		switch name, group, _ := strings.Cut(f.To.Owner, ":"); {
		case name != "" && name != c.User:
			o.Keep |= Giving
		case group != "" && c.User == "": // root need not be in the group; another user must
			o.Keep |= caps.Chown
		}
		if f.To.File != "" {
			o.Dirs = append(o.Dirs, filepath.Dir(f.To.File))
		}
	}
	if c.Region.Reserve && c.Region.Pages != config.PagesOrdinary {
		region := flows.RegionConfig(c.Region)
		o.Region = &region
	}
	return o
}

// ForCommand returns what a command that captures or replays needs. It has no control socket and
// makes no directories. user is the user of -Z. User 0 may write and read the files of all users,
// as who asks for it expects.
func ForCommand(c *config.Config, user string) Options {
	o := Options{User: user, Keep: Needed, Announce: true}
	uid := os.Geteuid()
	if u, err := lookUp(user); err == nil && u != nil { // Start says what is wrong with the name
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
	if c.Region.Reserve && c.Region.Pages != config.PagesOrdinary {
		region := flows.RegionConfig(c.Region)
		o.Region = &region
	}
	return o
}

// CommandNotes is the directory where commands of a user note which rules in cards are
// theirs. The daemon's may be another user's.
func CommandNotes(uid int) string { return "/run/unifiedd-command-" + strconv.Itoa(uid) }

// DefaultUser returns the user that a command becomes without -Z: the one who called sudo(8), or
// the daemon's user if it exists. Empty: the command keeps its user, as it always does unless root
// starts it.
func DefaultUser() string {
	self, err := caps.Self()
	if err != nil || self.UID.Effective != 0 || changes(&identity{}).Minus(self.Effective) != 0 {
		return ""
	}
	if number, ok := userNumber(os.Getenv("SUDO_UID")); ok && number != 0 {
		return strconv.FormatUint(uint64(number), 10)
	}
	if _, err := user.Lookup(daemonUser); err == nil {
		return daemonUser
	}
	return ""
}

// daemonUser is the user that packages make for the daemon.
const daemonUser = "unifiedd"
