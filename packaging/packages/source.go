package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// source is the tree that packages are made of.
type source struct {
	root    string
	stamp   string // the version that programs print
	version string // the version of the packages, which begins with a digit
	at      time.Time
	shipped []debianPackage // in images that were made
}

// release matches what git describe prints for a tree with a tag of a version.
var release = regexp.MustCompile(`^v?([0-9]+(?:\.[0-9]+)*)((?:-(?:alpha|beta|rc)[.0-9]*)?)(?:-([0-9]+)-g([0-9a-f]+))?(-dirty)?$`)

// newSource returns the tree at root. version is as git describe prints it; empty: ask git.
func newSource(root, version string) (*source, error) {
	s := &source{root: root, stamp: version}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		text, err := s.output("git", "log", "-1", "--format=%ct")
		if err != nil {
			return nil, fmt.Errorf("find the time of the commit: %w (outside of a clone, set SOURCE_DATE_EPOCH)", err)
		}
		epoch = strings.TrimSpace(text)
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w (give seconds since 1970)", err)
	}
	s.at = time.Unix(seconds, 0).UTC()
	if s.stamp == "" {
		text, err := s.output("git", "describe", "--tags", "--always", "--dirty")
		if err != nil {
			return nil, fmt.Errorf("find the version: %w (outside of a clone, give -version)", err)
		}
		s.stamp = strings.TrimPrefix(strings.TrimSpace(text), "v")
	}
	s.version = packageVersion(s.stamp, s.at)
	return s, nil
}

// packageVersion returns the version of the packages for one of git describe's. A tree between two
// releases is newer than the first one; one without a release is older than all.
func packageVersion(stamp string, at time.Time) string {
	m := release.FindStringSubmatch(stamp)
	if m == nil {
		rest := strings.Trim(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(stamp, "."), ".")
		return "0~git" + at.Format("20060102150405") + "." + rest
	}
	v := m[1] + strings.Replace(m[2], "-", "~", 1)
	if m[3] != "" {
		v += "+" + m[3] + ".g" + m[4]
	}
	if m[5] != "" {
		v += "+dirty"
	}
	return v
}

// output runs a program in the tree and returns what it prints.
func (s *source) output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.root
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// triplets are the names of architectures in those of cross compilers.
var triplets = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// compile builds all programs for an architecture, with RDMA.
func (s *source) compile(arch, dir string) error {
	env := environment(arch)
	if arch != runtime.GOARCH {
		cc, err := s.crossCompiler(arch, dir)
		if err != nil {
			return err
		}
		env = append(env, "CC="+cc)
	}
	return s.build(env, dir+string(filepath.Separator), "verbs", "./cmd/unifiedd", "./selftests/unified-flow-test", "./selftests/unified-nvme-test", "./selftests/unified-rdma-test", "./selftests/unified-tick-test", "./selftests/unified-xdp-test")
}

// environment returns the environment of a compiler, in which nothing of this machine's changes the result.
func environment(arch string) []string {
	return append(os.Environ(), "GOARCH="+arch, "GOOS=linux", "CGO_ENABLED=1", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "CGO_CFLAGS=-O2 -g", "CGO_LDFLAGS=-O2 -g")
}

// build compiles packages of the tree.
func (s *source) build(env []string, out, tags string, packages ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", "-s -w -buildid= -X main.version=" + s.stamp, "-o", out}, packages...)...)
	cmd.Dir, cmd.Env = s.root, env
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(cmd.Args[1:], " "), err, text)
	}
	return nil
}

// crossCompiler returns the command of a C compiler for another architecture. The headers of
// libibverbs are the same for all architectures, and this machine has them for its own.
func (s *source) crossCompiler(arch, dir string) (string, error) {
	cc := triplets[arch] + "-gcc"
	if _, err := exec.LookPath(cc); err != nil || triplets[arch] == "" {
		return "", fmt.Errorf("packages for %s take a C compiler for it: %w (install gcc-%s, or leave it out with ARCH=%s)", arch, err, strings.ReplaceAll(triplets[arch], "_", "-"), runtime.GOARCH)
	}
	include := dir + "-include"
	for _, part := range []string{"infiniband", "rdma"} {
		if err := os.MkdirAll(include, 0o755); err != nil {
			return "", err
		}
		if err := os.Symlink("/usr/include/"+part, filepath.Join(include, part)); err != nil {
			return "", err
		}
	}
	return cc + " -idirafter " + include, nil
}

// license is the text of one license, and the path for it.
type license struct {
	path string // in the directory of licenses
	text []byte
}

// licenseFile matches the names of files with licenses and notices.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|authors)([-._].*)?$`)

// licenses returns the licenses of Go and of every module that a program in dir has linked.
func (s *source) licenses(dir string) (all []license, err error) {
	dirs := map[string]string{}
	goroot, err := s.output("go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	dirs["go"] = strings.TrimSpace(goroot)
	programs, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(dir, program.Name()))
		if err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			dirs[m.Path] = ""
		}
	}
	if err := s.moduleDirs(dirs); err != nil {
		return nil, err
	}
	for path, at := range dirs {
		entries, err := os.ReadDir(at)
		if err != nil {
			return nil, fmt.Errorf("license of %s: %w", path, err)
		}
		found := len(all)
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenseFile.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(at, e.Name()))
			if err != nil {
				return nil, err
			}
			all = append(all, license{path + "/" + e.Name(), text})
		}
		if len(all) == found {
			return nil, fmt.Errorf("module %s has no license in %s", path, at)
		}
	}
	slices.SortFunc(all, func(a, b license) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// moduleDirs sets the directory of each module.
func (s *source) moduleDirs(dirs map[string]string) error {
	out, err := s.output("go", "list", "-m", "-json", "all")
	if err != nil {
		return err
	}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var m struct{ Path, Dir string }
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if at, linked := dirs[m.Path]; linked && at == "" {
			dirs[m.Path] = m.Dir
		}
	}
}
