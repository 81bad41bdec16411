package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Formats of images. The first has one static program; the second has it with RDMA, and the libraries it opens.
const (
	imageStatic = "image"
	imageVerbs  = "image-verbs"
)

// isImage reports whether a format is that of an image.
func isImage(format string) bool { return format == imageStatic || format == imageVerbs }

// libraries are the Debian packages in the image with RDMA.
const libraries = "packaging/apt-image.txt"

// licenseExpression is the license of the project's own programs, as SPDX writes it.
const licenseExpression = "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)"

// owner is the user and group of everything in an image.
const owner = 0

// writeImage adds an image to the OCI layout in a directory, and returns its reference there.
func (s *source) writeImage(arch, format, dir, work string) (string, error) {
	if err := os.MkdirAll(work, 0o755); err != nil {
		return "", err
	}
	var system []item
	bin := filepath.Join(work, "bin")
	if format == imageVerbs {
		if arch != runtime.GOARCH {
			return "", fmt.Errorf("the image with RDMA is made of this machine's Debian packages, for %s only (ARCH=%s)", runtime.GOARCH, runtime.GOARCH)
		}
		if err := s.compile(arch, bin); err != nil {
			return "", err
		}
		var err error
		if system, err = s.unpackLibraries(filepath.Join(work, "debian")); err != nil {
			return "", err
		}
	} else if err := s.build(append(environment(arch), "CGO_ENABLED=0"), bin+string(filepath.Separator), "", "./cmd/unifiedd"); err != nil {
		return "", err
	}
	content, err := s.imageContent(bin)
	if err != nil {
		return "", err
	}
	image, err := s.image(arch, system, content)
	if err != nil {
		return "", err
	}
	name := "unifiedd:" + strings.ReplaceAll(strings.ReplaceAll(s.version, "+", "_"), "~", "_") + map[string]string{imageStatic: "-", imageVerbs: "-verbs-"}[format] + arch
	return name, appendImage(dir, name, arch, image)
}

// images makes all images, and returns their references and architectures.
func (s *source) images(o options, work string) (names []string, err error) {
	for _, format := range o.formats {
		if !isImage(format) {
			return nil, fmt.Errorf("format %s: images and packages are not made together", format)
		}
		for _, arch := range o.arches {
			if format == imageVerbs && arch != runtime.GOARCH && len(o.arches) > 1 {
				continue // made of this machine's Debian packages
			}
			name, err := s.writeImage(arch, format, o.out, filepath.Join(work, format+arch))
			if err != nil {
				return nil, err
			}
			names = append(names, o.out+":"+name)
		}
	}
	return names, nil
}

// appendImage adds an image to a layout, which it makes if there is none. The image replaces one with the same name
// and architecture.
func appendImage(dir, name, arch string, image v1.Image) error {
	at, err := ocilayout.FromPath(dir)
	if err != nil {
		if at, err = ocilayout.Write(dir, empty.Index); err != nil {
			return err
		}
	}
	const refName = "org.opencontainers.image.ref.name"
	platform := v1.Platform{OS: "linux", Architecture: arch}
	return at.ReplaceImage(image, func(d v1.Descriptor) bool {
		return d.Annotations[refName] == name && d.Platform != nil && d.Platform.Architecture == arch
	}, ocilayout.WithAnnotations(map[string]string{refName: name}), ocilayout.WithPlatform(platform))
}

// image returns an image with one layer for each list of entries.
func (s *source) image(arch string, lists ...[]item) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	for _, all := range lists {
		if len(all) == 0 {
			continue
		}
		text, err := s.archive(all)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if image, err = mutate.Append(image, mutate.Addendum{
			Layer: layer, History: v1.History{Created: v1.Time{Time: s.at}, CreatedBy: "make image"},
		}); err != nil {
			return nil, err
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created = arch, "linux", v1.Time{Time: s.at}
	file.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/unifiedd"}, Cmd: []string{"run", "-c", "/etc/unifiedd/unifiedd.yaml"}, WorkingDir: "/",
		Env:     []string{"PATH=/usr/bin", "container=oci"}, // by the second the doctor knows that it is in one
		Volumes: map[string]struct{}{"/var/lib/unifiedd": {}}, StopSignal: "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title": "unifiedd", "org.opencontainers.image.version": s.version,
			"org.opencontainers.image.source": "https://github.com/unifiedd/unifiedd", "org.opencontainers.image.licenses": licenseExpression,
		},
	}
	return mutate.ConfigFile(image, file)
}

// item is a file, directory or link of a layer.
type item struct {
	name string // without a slash at the begin
	mode int64
	link string // target of a symbolic link
	dir  bool
	text []byte
}

// imageContent returns what is in the images besides libraries.
func (s *source) imageContent(bin string) ([]item, error) {
	program, err := os.ReadFile(filepath.Join(bin, "unifiedd"))
	if err != nil {
		return nil, err
	}
	all := []item{
		{name: "etc/passwd", mode: 0o644, text: []byte("root:x:0:0:root:/:/usr/sbin/nologin\nunifiedd:x:65532:65532:unifiedd:/var/lib/unifiedd:/usr/sbin/nologin\n")},
		{name: "etc/group", mode: 0o644, text: []byte("root:x:0:\nunifiedd:x:65532:\n")},
		{name: "etc/unifiedd", mode: 0o755, dir: true},
		{name: "run/unifiedd", mode: 0o755, dir: true},
		{name: "tmp", mode: 0o1777, dir: true},
		{name: "var/lib/unifiedd", mode: 0o755, dir: true},
		{name: "usr/bin/unifiedd", mode: 0o755, text: program},
	}
	for _, mount := range []string{"dev", "proc", "sys"} {
		all = append(all, item{name: mount, mode: 0o755, dir: true})
	}
	own, err := os.ReadFile(filepath.Join(s.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	all = append(all, item{name: "usr/share/doc/unifiedd/LICENSE", mode: 0o644, text: own})
	licenses, err := s.licenses(bin)
	for _, l := range licenses {
		all = append(all, item{name: "usr/share/doc/unifiedd/licenses/" + l.path, mode: 0o644, text: l.text})
	}
	return all, err
}

// unpackLibraries returns the files of the Debian packages in [libraries].
func (s *source) unpackLibraries(dir string) (all []item, err error) {
	text, err := os.ReadFile(filepath.Join(s.root, libraries))
	if err != nil {
		return nil, err
	}
	args := []string{"-qq", "-o", "APT::Sandbox::User=root", "download"}
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "#")
		args = append(args, strings.Fields(name)...)
	}
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	fetch := exec.Command("apt-get", args...)
	fetch.Dir = dir
	if out, err := fetch.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("apt-get download: %w (apt-get update, or leave out the image with RDMA)\n%s", err, out)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	for _, deb := range debs {
		if out, err := exec.Command("dpkg-deb", "-x", deb, root).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("unpack %s: %w\n%s", deb, err, out)
		}
		about, err := s.output("dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", deb)
		if err != nil {
			return nil, err
		}
		f := strings.Fields(about)
		s.shipped = append(s.shipped, debianPackage{f[0], f[1], f[2]})
	}
	if err != nil {
		return nil, err
	}
	return walk(root)
}

// walk lists a tree. A merged /usr has links for lib and lib64, as Debian's systems do.
func walk(root string) (all []item, err error) {
	all = []item{{name: "lib", link: "usr/lib"}, {name: "lib64", link: "usr/lib64"}}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, "lib/") || strings.HasPrefix(name, "lib64/") {
			name = "usr/" + name
		}
		if strings.HasPrefix(name, "usr/share/") && !strings.HasSuffix(name, "/copyright") {
			return nil
		}
		if d.Type()&os.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			if rest, isLib := strings.CutPrefix(target, "/lib/"); isLib {
				target = "/usr/lib/" + rest
			}
			all = append(all, item{name: name, link: target})
			return err
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, item{name: name, mode: int64(info.Mode().Perm()), text: text})
		return err
	})
	return all, err
}

// archive returns entries and their directories as a tar file, in the order of their names. Each belongs to root and
// has the time of the commit.
func (s *source) archive(all []item) ([]byte, error) {
	all = withParents(all)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range all {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.text)), Typeflag: tar.TypeReg, Uid: owner, Gid: owner, ModTime: s.at, Format: tar.FormatPAX}
		switch {
		case e.dir:
			h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		case e.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, bytes.NewReader(e.text)); err != nil {
			return nil, err
		}
	}
	err := w.Close() // it writes the end of the archive
	return b.Bytes(), err
}

// withParents adds the directories that entries are in, and sorts.
func withParents(all []item) []item {
	have := map[string]bool{}
	for _, e := range all {
		have[e.name] = true
	}
	for _, e := range slices.Clone(all) {
		for dir := path.Dir(e.name); dir != "." && !have[dir]; dir = path.Dir(dir) {
			have[dir] = true
			all = append(all, item{name: dir, mode: 0o755, dir: true})
		}
	}
	slices.SortFunc(all, func(a, b item) int { return strings.Compare(a.name, b.name) })
	return all
}
