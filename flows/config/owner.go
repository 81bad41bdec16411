package config

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// ParseMode reads the permissions of a file as chmod does. Who writes the file must be able to
// read it and write to it.
func ParseMode(s string) (fs.FileMode, error) {
	v, err := strconv.ParseUint(s, 8, 32)
	if err != nil || len(s) < 3 || len(s) > 4 || v > 0o777 {
		return 0, fmt.Errorf("%s is not a file's mode like 0640", quote(s))
	}
	return fs.FileMode(v), checkMode(fs.FileMode(v))
}

func checkMode(m fs.FileMode) error {
	if m&^0o777 != 0 || m != 0 && m&0o600 != 0o600 {
		return fmt.Errorf("mode %04o is not possible: the owner must be able to read and to write", uint32(m))
	}
	return nil
}

// checkOwner wants USER, USER:GROUP or :GROUP.
func checkOwner(s string) error {
	user, group, both := strings.Cut(s, ":")
	if user != "" && !isUser(user) || both && !isUser(group) || s == "" {
		return fmt.Errorf("%s is not an owner like capture or capture:adm", quote(s))
	}
	return nil
}
