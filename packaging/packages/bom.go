package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// module is the path of the project's module.
const module = "github.com/unifiedd/unifiedd"

// debianPackage is a Debian package in an image.
type debianPackage struct{ name, version, arch string }

// bill collects what programs and images have in them.
type bill struct {
	components map[string]cyclonedx.Component // by reference
	needs      map[string]map[string]bool     // references by reference
}

// writeBOM writes what the programs in directories, and the images, have in them: a CycloneDX document. It returns its path.
func (s *source) writeBOM(out string, bins []string) (string, error) {
	b := bill{map[string]cyclonedx.Component{}, map[string]map[string]bool{}}
	own := packageURL("golang", module, "v"+s.stamp, nil, "")
	b.needs[own] = map[string]bool{}
	for _, dir := range bins {
		programs, err := os.ReadDir(dir)
		if err != nil {
			return "", err
		}
		for _, program := range programs {
			info, err := buildinfo.ReadFile(filepath.Join(dir, program.Name()))
			if err != nil {
				return "", err
			}
			if err := b.program(info, own, s.stamp); err != nil {
				return "", err
			}
		}
	}
	for _, d := range s.shipped {
		ref := packageURL("deb", "debian/"+d.name, d.version, url.Values{"arch": {d.arch}}, "")
		b.add(own, ref, cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, Name: d.name, Version: d.version, Description: "in the image with RDMA"})
	}
	document := cyclonedx.NewBOM()
	document.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, []byte(own+s.at.String())).String() // the same each time
	document.Metadata = &cyclonedx.Metadata{
		Timestamp: s.at.Format(time.RFC3339),
		Component: &cyclonedx.Component{Type: cyclonedx.ComponentTypeApplication, BOMRef: own, Name: "unifiedd", Version: s.stamp, PackageURL: own, Licenses: &cyclonedx.Licenses{{Expression: licenseExpression}}},
	}
	document.Components, document.Dependencies = b.sorted()
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(document); err != nil {
		return "", err
	}
	name := filepath.Join(out, fmt.Sprintf("unifiedd_%s.cdx.json", s.version))
	return name, os.WriteFile(name, text.Bytes(), 0o644)
}

// program adds a program, and what it has linked.
func (b *bill) program(info *buildinfo.BuildInfo, own, version string) error {
	at := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "GOARCH" })
	if at < 0 {
		return fmt.Errorf("%s does not say its architecture", info.Path)
	}
	arch := info.Settings[at].Value
	ref := packageURL("golang", module, "v"+version, url.Values{"goos": {"linux"}, "goarch": {arch}}, strings.TrimPrefix(info.Path, module+"/"))
	b.add(own, ref, cyclonedx.Component{Type: cyclonedx.ComponentTypeApplication, Name: filepath.Base(info.Path), Version: version, Description: "for " + arch})
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	b.add(ref, packageURL("golang", "std", goVersion, nil, ""), cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: goVersion, Description: "Go's standard library"})
	for _, m := range info.Deps {
		if m.Replace != nil {
			return fmt.Errorf("%s links a replaced %s, which nobody else can get", info.Path, m.Path)
		}
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		if err != nil || len(sum) == 0 {
			return fmt.Errorf("%s links %s with the checksum %q: %w", info.Path, m.Path, m.Sum, err)
		}
		b.add(ref, packageURL("golang", m.Path, m.Version, nil, ""), cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}}, // of go.sum
		})
	}
	return nil
}

// add adds a component that another one needs.
func (b *bill) add(by, ref string, c cyclonedx.Component) {
	c.BOMRef, c.PackageURL = ref, ref
	b.components[ref] = c
	for _, one := range []string{by, ref} {
		if b.needs[one] == nil {
			b.needs[one] = map[string]bool{}
		}
	}
	b.needs[by][ref] = true
}

// sorted returns all components, and which needs which, in the order of their references.
func (b *bill) sorted() (*[]cyclonedx.Component, *[]cyclonedx.Dependency) {
	var components []cyclonedx.Component
	for _, c := range b.components {
		components = append(components, c)
	}
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	var all []cyclonedx.Dependency
	for ref, needs := range b.needs {
		one := cyclonedx.Dependency{Ref: ref}
		if len(needs) > 0 {
			var refs []string
			for need := range needs {
				refs = append(refs, need)
			}
			slices.Sort(refs)
			one.Dependencies = &refs
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b cyclonedx.Dependency) int { return cmp.Compare(a.Ref, b.Ref) })
	return &components, &all
}

// packageURL returns a package URL: github.com/package-url/purl-spec.
func packageURL(kind, name, version string, qualifiers url.Values, subpath string) string {
	to := "pkg:" + kind + "/" + name + "@" + url.QueryEscape(version)
	if len(qualifiers) > 0 {
		to += "?" + qualifiers.Encode()
	}
	if subpath != "" {
		to += "#" + subpath
	}
	return to
}
