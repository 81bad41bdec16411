package seccomp

import (
	"bytes"
	"encoding/json"
	"slices"

	"golang.org/x/sys/unix"
)

//go:generate go run ./generate ../../packaging/seccomp.json

// starting are the calls of a container's runtime between loading the profile and starting the program: it becomes the user of the
// container. The daemon's own filter refuses them.
var starting = []string{"setgid", "setgroups", "setresgid", "setresuid", "setuid"}

// profile is a profile of system calls, as docker, podman, containerd and CRI-O read it.
type profile struct {
	Default  string   `json:"defaultAction"`
	Errno    uint     `json:"defaultErrnoRet"`
	Arches   []arches `json:"archMap"`
	Syscalls []rule   `json:"syscalls"`
}

type arches struct {
	Name string   `json:"architecture"`
	Subs []string `json:"subArchitectures"`
}

type rule struct {
	Names  []string `json:"names"`
	Action string   `json:"action"`
	Errno  uint     `json:"errnoRet,omitempty"`
	Args   []arg    `json:"args,omitempty"`
}

// arg is a condition on an argument.
type arg struct {
	Index uint   `json:"index"`
	Value uint64 `json:"value"`
	Two   uint64 `json:"valueTwo"`
	Op    string `json:"op"`
}

// Profile returns the list as a profile for containers of the daemon: with the same conditions, and what the container's runtime
// calls besides.
func Profile() ([]byte, error) {
	const allow, refuse = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
	plain := slices.DeleteFunc(append(calls(), starting...), func(name string) bool {
		return name == "clone" || name == "clone3" || name == "socket"
	})
	slices.Sort(plain)
	p := profile{
		Default: refuse, Errno: uint(unix.EPERM),
		Arches: []arches{{"SCMP_ARCH_X86_64", []string{}}, {"SCMP_ARCH_AARCH64", []string{}}},
		Syscalls: []rule{
			{Names: plain, Action: allow},
			{Names: []string{"clone"}, Action: allow, Args: []arg{{0, namespaces, 0, "SCMP_CMP_MASKED_EQ"}}},
			{Names: []string{"clone3"}, Action: refuse, Errno: uint(unix.ENOSYS)}, // as withoutClone3
		},
	}
	for _, f := range Families {
		p.Syscalls = append(p.Syscalls, rule{Names: []string{"socket"}, Action: allow, Args: []arg{{0, f.Number, 0, "SCMP_CMP_EQ"}}})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "\t")
	err := e.Encode(p)
	return b.Bytes(), err
}
