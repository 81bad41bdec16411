package privsep

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/unifiedd/unifiedd/internal/caps"
)

// identity is a user to become; nil: the current user.
type identity struct {
	uid, gid uint32
	groups   []uint32
}

// is reports whether a thread runs as that user and cannot change back.
func (u *identity) is(t caps.Status) bool {
	if u == nil {
		return true
	}
	return t.UID == caps.ID{Real: u.uid, Effective: u.uid, Saved: u.uid, FS: u.uid}
}

// mapped reports whether a process can become the user in this user namespace (user_namespaces(7)).
func (u *identity) mapped() bool {
	if text, err := os.ReadFile("/proc/self/setgroups"); err == nil && strings.TrimSpace(string(text)) == "deny" {
		return false
	}
	for _, group := range u.groups {
		if !inMap("/proc/self/gid_map", group) {
			return false
		}
	}
	return inMap("/proc/self/uid_map", u.uid) && inMap("/proc/self/gid_map", u.gid)
}

// inMap reports whether a map of a user namespace has an ID. Where the kernel has no maps, there is one namespace.
func inMap(file string, id uint32) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(text)) {
		var first, outside, count uint64
		if n, _ := fmt.Sscan(line, &first, &outside, &count); n == 3 && uint64(id) >= first && uint64(id)-first < count {
			return true
		}
	}
	return false
}

// lookUp finds a user by name or number. A number need not be in the user database; its group then
// has the same number.
func lookUp(name string) (*identity, error) {
	if name == "" {
		return nil, nil
	}
	entry, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		if number, ok := userNumber(name); ok {
			return lookUpNumber(number)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w (make it: useradd --system %s)", err, name)
	}
	return newIdentity(entry)
}

// LookUp finds a user by name or number, and the groups that a daemon of that user has.
func LookUp(name string) (uid, gid uint32, groups []uint32, err error) {
	u, err := lookUp(name)
	if err != nil || u == nil {
		return 0, 0, nil, err
	}
	return u.uid, u.gid, u.groups, nil
}

// CheckUser returns an error if no such user can exist.
func CheckUser(name string) error {
	_, err := lookUp(name)
	return err
}

// userNumber parses a user number. The largest means "no change" to setresuid(2). The user database
// would truncate larger ones to 32 bits.
func userNumber(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n < 1<<32-1
}

func lookUpNumber(number uint32) (*identity, error) {
	entry, err := user.LookupId(strconv.FormatUint(uint64(number), 10))
	if errors.As(err, new(user.UnknownUserIdError)) {
		return &identity{uid: number, gid: number}, nil
	}
	if err != nil {
		return nil, err
	}
	return newIdentity(entry)
}

func newIdentity(entry *user.User) (*identity, error) {
	groups, err := entry.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("look up the groups of user %s: %w", entry.Username, err)
	}
	ids := make([]uint32, 0, 2+len(groups))
	for _, text := range append([]string{entry.Uid, entry.Gid}, groups...) {
		id, ok := userNumber(text)
		if !ok {
			return nil, fmt.Errorf("look up user %s: %q is not a number of a user or group", entry.Username, text)
		}
		ids = append(ids, id)
	}
	return &identity{uid: ids[0], gid: ids[1], groups: ids[2:]}, nil
}
