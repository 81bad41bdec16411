package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func build(version string) *debug.BuildInfo {
	return &debug.BuildInfo{
		Main: debug.Module{Version: version},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
}

func TestFill(t *testing.T) {
	for _, test := range []struct{ stamp, module, want string }{
		{"1.2.3", "v9.9.9", "1.2.3"},
		{"", "v1.2.3", "1.2.3"},
		{"", "(devel)", ""},
	} {
		i := Info{Version: test.stamp}
		i.fill(build(test.module))
		if i.Version != test.want || i.Commit != "0123456789abcdef0123" || i.Time == "" || !i.Modified {
			t.Errorf("stamp %q, module %q: %+v, want version %q", test.stamp, test.module, i, test.want)
		}
	}
}

func TestString(t *testing.T) {
	i := Info{Version: "1.2.3", Go: "go1.26", OS: "linux", Arch: "amd64", Kernel: "6.1.0"}
	if got, want := i.String(), "unifiedd 1.2.3, go1.26 linux/amd64, kernel 6.1.0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	i.Commit, i.Modified = "0123456789abcdef", true
	if got, want := i.String(), "unifiedd 1.2.3 commit 0123456789ab (modified), go1.26 linux/amd64, kernel 6.1.0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestGet(t *testing.T) {
	i := Get("")
	if i.Version == "" || i.Kernel == "" || !strings.HasPrefix(i.Go, "go") {
		t.Errorf("Get is %+v", i)
	}
	if got := Get("1.2.3").Version; got != "1.2.3" {
		t.Errorf("stamped 1.2.3, version is %q", got)
	}
}
