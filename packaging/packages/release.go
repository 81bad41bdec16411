package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// sums is the file with the checksums of a release, as sha256sum prints them.
const sums = "SHA256SUMS"

// release builds packages, archives of images, a list of what is in them, and the checksums of all these.
func (s *source) release(o options, work string) (names []string, err error) {
	o.formats = []string{"deb", "rpm"}
	names, bins, err := s.packages(o, work)
	if err != nil {
		return nil, err
	}
	for _, format := range []string{imageStatic, imageVerbs} {
		for _, arch := range o.arches {
			if format == imageVerbs && arch != runtime.GOARCH {
				continue // made of this machine's Debian packages
			}
			at := filepath.Join(work, format+arch)
			name, err := s.imageArchive(arch, format, o.out, at)
			if err != nil {
				return nil, err
			}
			names, bins = append(names, name), append(bins, filepath.Join(at, "bin"))
		}
	}
	name, err := s.writeBOM(o.out, bins)
	if err != nil {
		return nil, err
	}
	names = append(names, name)
	name, err = writeSums(o.out, names)
	return append(names, name), err
}

// imageArchive writes an OCI layout with one image as a tar file, which podman load reads, and returns its path.
func (s *source) imageArchive(arch, format, out, work string) (string, error) {
	dir := filepath.Join(work, "layout")
	if _, err := s.writeImage(arch, format, dir, work); err != nil {
		return "", err
	}
	var all []item
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, item{name: name, mode: 0o644, text: text})
		return err
	})
	if err != nil {
		return "", err
	}
	text, err := s.archive(all)
	if err != nil {
		return "", err
	}
	name := filepath.Join(out, fmt.Sprintf("unifiedd_%s_%s%s.oci.tar", s.version, arch, strings.TrimPrefix(format, imageStatic)))
	return name, os.WriteFile(name, text, 0o644)
}

// writeSums writes the checksums of files in a directory, and returns the path.
func writeSums(dir string, names []string) (string, error) {
	var lines []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if filepath.Dir(name) != filepath.Clean(dir) {
			return "", errors.New(name + " is not in " + dir)
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(text), filepath.Base(name)))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[sha256.Size*2:], b[sha256.Size*2:]) })
	name := filepath.Join(dir, sums)
	return name, os.WriteFile(name, []byte(strings.Join(lines, "")), 0o644)
}
