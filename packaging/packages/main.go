// Packages builds the Debian and RPM packages of unifiedd, and container images.
//
// It compiles the programs and the C library, makes the manual pages and completions, collects the licenses of all
// modules that are linked, and writes a package for each architecture and format. It is a module of
// its own, so that the daemon does not depend on what makes packages.
//
// The same tree and version give the same bytes, wherever and whenever the packages are made: the times in
// them are that of the commit, or SOURCE_DATE_EPOCH.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	var o options
	flag.StringVar(&o.root, "root", "..", "`DIRECTORY` of the source tree")
	flag.StringVar(&o.out, "out", "../build/packages", "`DIRECTORY` for the packages")
	flag.StringVar(&o.version, "version", "", "`VERSION` as git describe prints it")
	arches := flag.String("arch", "amd64,arm64", "`ARCHITECTURES`, by their names in Go")
	formats := flag.String("format", "deb,rpm", "`FORMATS`: deb and rpm, or image and image-verbs, which go into one OCI layout")
	flag.BoolVar(&o.release, "release", false, "make a release: all formats, each image as an archive, a list of what is in them (CycloneDX), and checksums")
	flag.Parse()
	o.arches, o.formats = strings.Split(*arches, ","), strings.Split(*formats, ",")
	names, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
	for _, name := range names {
		fmt.Println(name)
	}
}

// options say what to build.
type options struct {
	root, out, version string
	arches, formats    []string
	release            bool
}

// run builds the packages and returns their paths.
func run(o options) (names []string, err error) {
	work, err := os.MkdirTemp("", "packages")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if o.root, err = filepath.Abs(o.root); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, err
	}
	s, err := newSource(o.root, o.version)
	if err != nil {
		return nil, err
	}
	switch {
	case o.release:
		return s.release(o, work)
	case isImage(o.formats[0]):
		return s.images(o, work)
	}
	names, _, err = s.packages(o, work)
	return names, err
}

// packages builds the packages, and returns their paths and the directories of the programs in them.
func (s *source) packages(o options, work string) (names, bins []string, err error) {
	native := filepath.Join(work, runtime.GOARCH) // also where no package for it is wanted: it prints the pages
	if err := s.compile(runtime.GOARCH, native); err != nil {
		return nil, nil, err
	}
	p := pages{source: s, bin: native, dir: filepath.Join(work, "pages")}
	if err := p.make(); err != nil {
		return nil, nil, err
	}
	for _, arch := range o.arches {
		bin := filepath.Join(work, arch)
		if bin != native {
			if err := s.compile(arch, bin); err != nil {
				return nil, nil, err
			}
		}
		bins = append(bins, bin)
		licenses, err := s.licenses(bin)
		if err != nil {
			return nil, nil, err
		}
		for _, format := range o.formats {
			name, err := write(layout{source: s, arch: arch, format: format, bin: bin, pages: p, licenses: licenses, work: filepath.Join(work, arch+format)}, o.out)
			if err != nil {
				return nil, nil, err
			}
			of, err := s.libraries(arch, format, filepath.Join(work, arch+format+"-library"), o.out)
			if err != nil {
				return nil, nil, err
			}
			names = append(append(names, name), of...)
		}
	}
	return names, bins, nil
}
