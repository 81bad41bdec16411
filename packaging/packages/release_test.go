package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// TestRelease: a release has packages and images of both architectures, a bill of materials and the checksums of all. One that
// is made of a copy of the tree, with a build cache of its own, in another time zone and with another umask, has the same bytes.
func TestRelease(t *testing.T) {
	long(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	first := options{root: root, out: t.TempDir(), version: "1.2.3", arches: []string{"amd64", "arm64"}, release: true}
	a, err := run(first)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(root, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	second := first
	second.root, second.out = filepath.Join(t.TempDir(), "another", "place"), t.TempDir()
	copyTree(t, root, second.root)
	t.Setenv("GOCACHE", t.TempDir())
	t.Setenv("TZ", "Pacific/Chatham")
	t.Setenv("LC_ALL", "C")
	t.Setenv("SOURCE_DATE_EPOCH", fmt.Sprint(s.at.Unix()))
	b, err := run(second)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range a {
		names = append(names, filepath.Base(a[i]))
		x, errX := os.ReadFile(a[i])
		y, errY := os.ReadFile(b[i])
		if errX != nil || errY != nil || filepath.Base(a[i]) != filepath.Base(b[i]) || !bytes.Equal(x, y) {
			t.Errorf("%s and %s differ: %v, %v", a[i], b[i], errX, errY)
		}
	}
	slices.Sort(names)
	want := []string{
		"SHA256SUMS", "libunifiedd-1.2.3-1.aarch64.rpm", "libunifiedd-1.2.3-1.x86_64.rpm", "libunifiedd-dev_1.2.3-1_amd64.deb", "libunifiedd-dev_1.2.3-1_arm64.deb",
		"libunifiedd-devel-1.2.3-1.aarch64.rpm", "libunifiedd-devel-1.2.3-1.x86_64.rpm", "libunifiedd1_1.2.3-1_amd64.deb", "libunifiedd1_1.2.3-1_arm64.deb",
		"unifiedd-1.2.3-1.aarch64.rpm", "unifiedd-1.2.3-1.x86_64.rpm", "unifiedd_1.2.3-1_amd64.deb", "unifiedd_1.2.3-1_arm64.deb", "unifiedd_1.2.3.cdx.json",
		"unifiedd_1.2.3_amd64-verbs.oci.tar", "unifiedd_1.2.3_amd64.oci.tar", "unifiedd_1.2.3_arm64.oci.tar",
	}
	if !slices.Equal(names, want) {
		t.Errorf("the release has %q, want %q", names, want)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = first.out
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK\n") != len(names)-1 {
		t.Errorf("sha256sum --check: %v\n%s", err, out)
	}
	unpacked := t.TempDir()
	output(t, "dpkg-deb", "-x", filepath.Join(first.out, "unifiedd_1.2.3-1_arm64.deb"), unpacked)
	if kind := output(t, "file", "-b", filepath.Join(unpacked, "usr/bin/unifiedd")); !strings.Contains(kind, "aarch64") {
		t.Errorf("the program for arm64 is %s", kind)
	}
	checkBOM(t, filepath.Join(first.out, "unifiedd_1.2.3.cdx.json"), filepath.Join(unpacked, "usr/bin"))
	checkArchive(t, filepath.Join(first.out, "unifiedd_1.2.3_amd64.oci.tar"))
}

// checkBOM checks that a bill of materials has each module that programs have linked, and no reference to what it does not have.
func checkBOM(t *testing.T, name, bin string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(f, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	have := map[string]cyclonedx.Component{bom.Metadata.Component.BOMRef: *bom.Metadata.Component}
	for _, c := range *bom.Components {
		have[c.BOMRef] = c
	}
	needs := map[string][]string{}
	for _, d := range *bom.Dependencies {
		if d.Dependencies != nil {
			needs[d.Ref] = *d.Dependencies
		}
		for _, ref := range append(needs[d.Ref], d.Ref) {
			if have[ref].Name == "" {
				t.Errorf("the bill has no component %s", ref)
			}
		}
	}
	programs, err := filepath.Glob(filepath.Join(bin, "*"))
	if err != nil || len(programs) < 6 {
		t.Fatalf("programs: %q, %v", programs, err)
	}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := "pkg:golang/" + module + "@v1.2.3?goarch=arm64&goos=linux#" + strings.TrimPrefix(info.Path, module+"/")
		if got, want := len(needs[at]), len(info.Deps)+1; got != want || len(info.Deps) == 0 {
			t.Errorf("%s: the bill has %d modules, want %d", at, got, want)
		}
		for _, m := range info.Deps {
			ref := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
			if c := have[ref]; c.Version != m.Version || c.Hashes == nil || !slices.Contains(needs[at], ref) {
				t.Errorf("%s links %s: the bill says %+v", at, ref, c)
			}
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"pkg:deb/debian/libibverbs1@[^"]*arch=amd64"`, `"pkg:golang/std@1\.[0-9.]+"`, `"bomFormat": "CycloneDX"`} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("the bill has no %s", want)
		}
	}
}

// checkArchive checks that an archive is an OCI layout with one image of this version.
func checkArchive(t *testing.T, name string) {
	t.Helper()
	dir := t.TempDir()
	output(t, "tar", "-x", "-f", name, "-C", dir)
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &index)
	}
	if err != nil || len(index.Manifests) != 1 || index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "unifiedd:1.2.3-amd64" {
		t.Fatalf("the index of %s (%v):\n%s", name, err, text)
	}
	if _, err := os.Stat(filepath.Join(dir, "blobs", strings.ReplaceAll(index.Manifests[0].Digest, ":", "/"))); err != nil {
		t.Error(err)
	}
}
