package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2/files"
)

// layout is the contents of one package.
type layout struct {
	*source
	arch, format string
	bin          string // directory of the programs
	pages        pages
	licenses     []license
	work         string // directory for files that are made for this package
	contents     files.Contents
	err          error // the first
}

// Directories that differ between distributions.
var directories = map[string]struct{ unit, zsh string }{
	"deb": {"/lib/systemd/system", "/usr/share/zsh/vendor-completions"},
	"rpm": {"/usr/lib/systemd/system", "/usr/share/zsh/site-functions"},
}

const documents = "/usr/share/doc/unifiedd"

// make lists the contents.
func (l *layout) make() error {
	at := directories[l.format]
	programs, err := os.ReadDir(l.bin)
	if err != nil {
		return err
	}
	for _, p := range programs {
		l.file(filepath.Join(l.bin, p.Name()), "/usr/bin/"+p.Name(), files.TypeFile, 0o755)
	}
	l.text(strings.ReplaceAll(l.read("packaging/unifiedd.service"), "@PREFIX@", "/usr"), at.unit+"/unifiedd.service")
	l.tree("packaging/unifiedd.sysusers", "/usr/lib/sysusers.d/unifiedd.conf")
	l.tree("packaging/unifiedd.tmpfiles", "/usr/lib/tmpfiles.d/unifiedd.conf")
	l.file(filepath.Join(l.root, "packaging", "unifiedd.yaml"), "/etc/unifiedd/unifiedd.yaml", files.TypeConfigNoReplace, 0o640) // it may have passwords
	l.directory("/etc/unifiedd")
	for shell, target := range map[string]string{"bash": "/usr/share/bash-completion/completions/unifiedd", "zsh": at.zsh + "/_unifiedd", "fish": "/usr/share/fish/vendor_completions.d/unifiedd.fish"} {
		l.file(filepath.Join(l.pages.dir, "completion", shell), target, files.TypeFile, 0o644)
	}
	l.manual()
	l.documents()
	if l.format == "rpm" {
		l.ownDirectories()
	}
	return l.err
}

// ownDirectories adds the directories of documents. Otherwise rpm leaves them behind when it erases the package.
// Directories of deb packages need no entry.
func (l *layout) ownDirectories() {
	added := map[string]bool{}
	for _, c := range slices.Clone(l.contents) {
		for dir := path.Dir(c.Destination); strings.HasPrefix(dir, documents) && !added[dir]; dir = path.Dir(dir) {
			added[dir] = true
			l.directory(dir)
		}
	}
}

// manual adds the manual pages, compressed.
func (l *layout) manual() {
	all, err := os.ReadDir(filepath.Join(l.pages.dir, "man"))
	l.keep(err)
	for _, page := range all {
		text, err := os.ReadFile(filepath.Join(l.pages.dir, "man", page.Name()))
		l.keep(err)
		section := strings.TrimPrefix(path.Ext(page.Name()), ".")
		l.compressed(text, "/usr/share/man/man"+section+"/"+page.Name()+".gz")
	}
}

// documents adds the documents, and the licenses.
func (l *layout) documents() {
	for _, pattern := range []string{"*.md", "*/*.md", "pictures/*"} {
		found, err := filepath.Glob(filepath.Join(l.root, "docs", pattern))
		l.keep(err)
		for _, name := range found {
			inside, err := filepath.Rel(filepath.Join(l.root, "docs"), name)
			l.keep(err)
			l.file(name, documents+"/"+filepath.ToSlash(inside), files.TypeRPMDoc, 0o644)
		}
	}
	examples, err := filepath.Glob(filepath.Join(l.root, "packaging", "prometheus", "*"))
	l.keep(err)
	for _, name := range examples {
		l.file(name, documents+"/examples/"+filepath.Base(name), files.TypeRPMDoc, 0o644)
	}
	l.tree("packaging/unifiedd.yaml", documents+"/examples/unifiedd.yaml")
	l.compressed([]byte(l.read("CHANGELOG.md")), documents+"/changelog.gz")
	if l.format == "deb" {
		l.debianChangelog("unifiedd")
	}
	l.text(l.copyright(), documents+"/copyright")
	l.text(l.read("LICENSE"), documents+"/licenses/unifiedd/LICENSE")
	l.text(l.read("bpf/LICENSE"), documents+"/licenses/unifiedd/LICENSE.bpf")
	for _, one := range l.licenses {
		l.text(string(one.text), documents+"/licenses/"+one.path)
	}
}

const maintainer = "The unifiedd authors <unifiedd@users.noreply.github.com>"

// debianChangelog adds Debian's own changelog of a package.
func (l *layout) debianChangelog(name string) {
	text := fmt.Sprintf("%s (%s-1) unstable; urgency=medium\n\n  * Release %s. The changes are in changelog.gz of unifiedd.\n\n -- %s  %s\n", name, l.version, l.version, maintainer, l.at.Format(time.RFC1123Z))
	l.compressed([]byte(text), path.Join("/usr/share/doc", name, "changelog.Debian.gz"))
}

// copyright returns the text of Debian's file about licenses.
func (l *layout) copyright() string {
	var b strings.Builder
	b.WriteString("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: unifiedd\nSource: https://github.com/unifiedd/unifiedd\n")
	b.WriteString("Comment: The programs have linked the modules whose licenses are in\n " + documents + "/licenses.\n\n")
	b.WriteString("Files: *\nCopyright: 2026 The unifiedd authors\nLicense: Apache-2.0\n\nFiles: bpf/*\nCopyright: 2026 The unifiedd authors\nLicense: GPL-2.0 or BSD-2-Clause\n\n")
	b.WriteString("License: Apache-2.0\n On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n Elsewhere it is in licenses/unifiedd/LICENSE beside this file.\n\n")
	b.WriteString("License: GPL-2.0 or BSD-2-Clause\n")
	b.WriteString(" On Debian systems, the text of GPL-2.0 is in /usr/share/common-licenses/GPL-2.\n")
	_, bsd, _ := strings.Cut(l.read("bpf/LICENSE"), "\nBSD-2-Clause\n")
	bsd, _, _ = strings.Cut(bsd, "\n----")
	for line := range strings.Lines(" .\n" + strings.TrimSpace(bsd) + "\n") {
		if strings.TrimSpace(line) == "" {
			line = ".\n"
		}
		b.WriteString(" " + strings.TrimLeft(line, " "))
	}
	return b.String()
}

// read returns a file of the tree.
func (l *layout) read(name string) string {
	text, err := os.ReadFile(filepath.Join(l.root, filepath.FromSlash(name)))
	l.keep(err)
	return string(text)
}

// keep remembers the first error.
func (l *layout) keep(err error) {
	if l.err == nil {
		l.err = err
	}
}

// tree adds a file of the tree.
func (l *layout) tree(name, target string) {
	l.file(filepath.Join(l.root, filepath.FromSlash(name)), target, files.TypeFile, 0o644)
}

// text adds a file with that text.
func (l *layout) text(text, target string) {
	made := filepath.Join(l.work, filepath.FromSlash(target))
	l.keep(os.MkdirAll(filepath.Dir(made), 0o755))
	l.keep(os.WriteFile(made, []byte(text), 0o644))
	kind := files.TypeFile
	if strings.HasPrefix(target, documents+"/licenses/") {
		kind = files.TypeRPMLicense
	}
	l.file(made, target, kind, 0o644)
}

func (l *layout) compressed(text []byte, target string) {
	small, err := compress(text)
	l.keep(err)
	l.text(string(small), target)
}

func (l *layout) file(from, target, kind string, mode os.FileMode) {
	if l.format == "deb" && kind != files.TypeConfigNoReplace {
		kind = files.TypeFile // documents and licenses are kinds of files of RPM only
	}
	l.contents = append(l.contents, &files.Content{Source: from, Destination: target, Type: kind, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: l.at}})
}

func (l *layout) directory(target string) {
	l.contents = append(l.contents, &files.Content{Destination: target, Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755, MTime: l.at}})
}

// glibc returns the oldest version of the C library with which the programs in a directory start. It is
// an error if they need another library: the libraries of RDMA are opened when they are used.
func glibc(dir string) (string, error) {
	most := [2]int{}
	programs, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, p := range programs {
		f, err := elf.Open(filepath.Join(dir, p.Name()))
		if err != nil {
			return "", err
		}
		defer f.Close()
		libraries, err := f.ImportedLibraries()
		if err != nil {
			return "", err
		}
		for _, name := range libraries {
			if name != "libc.so.6" && name != "libresolv.so.2" && !strings.HasPrefix(name, "ld-linux-") {
				return "", fmt.Errorf("%s needs %s, which the packages do not depend on", p.Name(), name)
			}
		}
		symbols, err := f.ImportedSymbols()
		if err != nil {
			return "", err
		}
		for _, s := range symbols {
			major, minor, ok := strings.Cut(strings.TrimPrefix(s.Version, "GLIBC_"), ".")
			a, errA := strconv.Atoi(major)
			b, errB := strconv.Atoi(strings.Split(minor, ".")[0])
			if ok && errA == nil && errB == nil && (a > most[0] || a == most[0] && b > most[1]) {
				most = [2]int{a, b}
			}
		}
	}
	if most[0] == 0 {
		return "", fmt.Errorf("the programs in %s use no C library", dir)
	}
	return fmt.Sprintf("%d.%d", most[0], most[1]), nil
}
