package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
)

// owner is the user, group and mode of a flow's files.
type owner struct {
	name     string
	uid, gid int         // -1: those of the process
	mode     fs.FileMode // 0: as created
}

// newOwner looks up the user and the group.
func newOwner(to config.To) (o owner, err error) {
	o = owner{name: to.Owner, uid: -1, gid: -1, mode: to.Mode}
	name, group, _ := strings.Cut(to.Owner, ":")
	if name != "" {
		if o.uid, err = userID(name); err != nil {
			return o, fmt.Errorf("owner %s: %w (create the user, or name another)", to.Owner, err)
		}
	}
	if group != "" {
		if o.gid, err = groupID(group); err != nil {
			return o, fmt.Errorf("owner %s: %w (create the group, or name another)", to.Owner, err)
		}
	}
	return o, nil
}

// OwnerOf returns the user and group ID of a flow's files; -1: that of the process.
func OwnerOf(to config.To) (uid, gid int, err error) {
	o, err := newOwner(to)
	return o.uid, o.gid, err
}

func userID(name string) (int, error) {
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(u.Uid)
}

func groupID(name string) (int, error) {
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(g.Gid)
}

// apply sets the mode and the owner of an open file.
func (o *owner) apply(fd int) error {
	if o.mode != 0 { // before chown, after which the process may lose the right to chmod
		if err := unix.Fchmod(fd, uint32(o.mode)); err != nil {
			return fmt.Errorf("give it mode %04o: %w", uint32(o.mode), err)
		}
	}
	if o.uid >= 0 || o.gid >= 0 {
		if err := unix.Fchown(fd, o.uid, o.gid); err != nil {
			return fmt.Errorf("give it to owner %s: %w%s", o.name, err, permissionHint(err))
		}
	}
	return nil
}

// permissionHint returns the remedy if the process may not change owners.
func permissionHint(err error) string {
	if errors.Is(err, unix.EPERM) {
		return " (start the daemon as root with this setting in its file, run as that user, or name a group that this one is in)"
	}
	return ""
}
