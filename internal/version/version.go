// Package version says which build of the project a program is.
//
// The release is stamped into each program when it is linked, by -ldflags "-X main.version=1.2.3",
// and passed to [Get]. The commit is the one that the Go tool recorded in the binary. Any goroutine
// may call any function.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Info describes a build and the kernel that it runs on. Its JSON is that of `unifiedd version
// --json`.
type Info struct {
	Version  string `json:"version"`          // "devel" unless stamped or installed as a module
	Commit   string `json:"commit,omitempty"` // empty when built outside of a repository
	Time     string `json:"commit_time,omitempty"`
	Modified bool   `json:"modified"` // built from sources which differ from the commit
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Kernel   string `json:"kernel"` // release, as uname -r prints it
}

// Get describes the running program. stamp is the release that was set when it was linked; empty if
// none was.
func Get(stamp string) Info {
	i := Info{Version: stamp, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Kernel: kernel()}
	if b, ok := debug.ReadBuildInfo(); ok {
		i.fill(b)
	}
	if i.Version == "" {
		i.Version = "devel"
	}
	return i
}

// fill sets the fields that the Go tool recorded in the program.
func (i *Info) fill(b *debug.BuildInfo) {
	if i.Version == "" && b.Main.Version != "(devel)" {
		i.Version = strings.TrimPrefix(b.Main.Version, "v")
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.time":
			i.Time = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
}

// kernel returns the release of the running kernel; empty if it is not known.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// String returns the build in one line.
func (i Info) String() string {
	commit := ""
	if i.Commit != "" {
		commit = " commit " + i.Commit[:min(12, len(i.Commit))]
		if i.Modified {
			commit += " (modified)"
		}
	}
	return fmt.Sprintf("unifiedd %s%s, %s %s/%s, kernel %s", i.Version, commit, i.Go, i.OS, i.Arch, i.Kernel)
}
