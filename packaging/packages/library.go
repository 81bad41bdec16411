package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
)

// libraryNames are the packages of the C library: what programs need to run, and what they are built with.
var libraryNames = map[string][2]string{"deb": {"libunifiedd1", "libunifiedd-dev"}, "rpm": {"libunifiedd", "libunifiedd-devel"}}

// libraryDir returns the directory of libraries.
func libraryDir(arch, format string) string {
	if format == "deb" {
		return "/usr/lib/" + triplets[arch]
	}
	return "/usr/lib64"
}

// libraries makes the packages of the C library for an architecture and a format, and returns their paths.
func (s *source) libraries(arch, format, work, out string) (names []string, err error) {
	dir, tree := libraryDir(arch, format), filepath.Join(work, "tree")
	if err := s.makeLibrary(arch, dir, work, tree); err != nil {
		return nil, err
	}
	libc, err := glibc(filepath.Join(work, "shared"))
	if err != nil {
		return nil, err
	}
	both := libraryNames[format]
	shared := layout{source: s, arch: arch, format: format, work: filepath.Join(work, both[0])}
	shared.file(filepath.Join(tree, dir, "libunifiedd.so.1"), dir+"/libunifiedd.so.1", files.TypeFile, 0o644)
	shared.text(apacheCopyright, "/usr/share/doc/"+both[0]+"/copyright")
	dev := layout{source: s, arch: arch, format: format, work: filepath.Join(work, both[1])}
	dev.development(both[1], dir, tree)
	for i, l := range []*layout{&shared, &dev} {
		if format == "deb" {
			l.debianChangelog(both[i])
		}
		info := l.libraryInfo(both[i])
		switch {
		case l.err != nil:
			return nil, fmt.Errorf("contents of %s: %w", both[i], l.err)
		case i == 0 && format == "deb":
			info.Depends = []string{"libc6 (>= " + libc + ")"}
			info.Deb.Triggers.ActivateNoAwait = []string{"ldconfig"}
		case i == 0:
			info.Depends = []string{"glibc >= " + libc}
		case format == "deb":
			info.Depends = []string{both[0] + " (= " + s.version + "-1)"}
		default:
			info.Depends = []string{both[0] + " = " + s.version + "-1"}
		}
		name, err := pack(nfpm.WithDefaults(info), format, out)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// makeLibrary builds the library and installs it below tree. The shared library alone is in work/shared.
func (s *source) makeLibrary(arch, dir, work, tree string) error {
	args := []string{"-s", "-C", filepath.Join(s.root, "libunifiedd"), "install", "OUT=" + filepath.Join(work, "built"), "DESTDIR=" + tree,
		"PREFIX=/usr", "LIBDIR=" + dir, "VERSION=" + s.stamp, "CFLAGS=-O2", "LDFLAGS=-s"}
	if arch != runtime.GOARCH {
		args = append(args, "CC="+triplets[arch]+"-gcc", "AR="+triplets[arch]+"-ar")
	}
	cmd := exec.Command("make", args...)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "CPPFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build libunifiedd: %w\n%s", err, text)
	}
	apart := filepath.Join(work, "shared")
	if err := os.MkdirAll(apart, 0o755); err != nil {
		return err
	}
	return os.Link(filepath.Join(tree, dir, "libunifiedd.so.1"), filepath.Join(apart, "libunifiedd.so.1"))
}

// development adds what programs are built with.
func (l *layout) development(name, dir, tree string) {
	for _, file := range []string{dir + "/libunifiedd.a", dir + "/pkgconfig/unifiedd.pc", "/usr/include/unifiedd.h"} {
		l.file(filepath.Join(tree, file), file, files.TypeFile, 0o644)
	}
	l.contents = append(l.contents, &files.Content{Source: "libunifiedd.so.1", Destination: dir + "/libunifiedd.so", Type: files.TypeSymlink, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", MTime: l.at}})
	l.compressed([]byte(l.read("libunifiedd/unifiedd.3")), "/usr/share/man/man3/unifiedd.3.gz")
	examples, err := filepath.Glob(filepath.Join(l.root, "libunifiedd", "examples", "*.c"))
	l.keep(err)
	for _, file := range examples {
		l.file(file, path.Join("/usr/share/doc", name, "examples", filepath.Base(file)), files.TypeFile, 0o644)
	}
	l.text(apacheCopyright, "/usr/share/doc/"+name+"/copyright")
}

const apacheCopyright = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: unifiedd\nSource: https://github.com/unifiedd/unifiedd\n\n" +
	"Files: *\nCopyright: 2026 The unifiedd authors\nLicense: Apache-2.0\n On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n Elsewhere: https://www.apache.org/licenses/LICENSE-2.0\n"

// libraryInfo returns the description of a package of the library.
func (l *layout) libraryInfo(name string) *nfpm.Info {
	section := "libs"
	text := "Library of programs that attach to unifiedd\nPackets and messages land in memory that the program and the daemon share."
	if name == libraryNames[l.format][1] {
		section = "libdevel"
		text = "Library of programs that attach to unifiedd, for development\nThe header, the manual page, the static library and examples."
	}
	info := &nfpm.Info{
		Name: name, Arch: l.arch, Platform: "linux", Version: l.version, VersionSchema: "none", Release: "1", Section: section, Priority: "optional",
		Maintainer: maintainer, Vendor: "The unifiedd authors", Homepage: "https://github.com/unifiedd/unifiedd", License: "Apache-2.0", Description: text, MTime: l.at,
	}
	info.Contents, info.Umask = l.contents, 0o022
	if l.format == "deb" {
		info.Deb.Compression, info.License = "gzip:9", "" // Debian has it in the file copyright
		return info
	}
	info.RPM.BuildHost, info.RPM.Compression, info.RPM.Packager = "localhost", "gzip:9", maintainer
	info.RPM.Summary, info.RPM.Group = "Library of programs that attach to unifiedd", "System Environment/Libraries"
	return info
}
