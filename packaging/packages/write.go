package main

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// scripts are what the packages run when they are installed and removed.
//
//go:embed scripts
var scripts embed.FS

const description = `Moves data between network, storage and remote memory
unifiedd keeps one region of huge pages, and registers it with network
interfaces (AF_XDP), RDMA devices and disks (io_uring). It captures packets
to disk, keeps replicated logs, and serves blocks, without copies. RDMA over
cards takes the libraries of rdma-core; RDMA in software does not.`

// write writes a package to a directory, and returns its path.
func write(l layout, dir string) (name string, err error) {
	if err := l.make(); err != nil {
		return "", fmt.Errorf("contents of the package: %w", err)
	}
	info, err := l.info()
	if err != nil {
		return "", err
	}
	return pack(info, l.format, dir)
}

// pack writes a package that is described to a directory, and returns its path.
func pack(info *nfpm.Info, format, dir string) (name string, err error) {
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return "", err
	}
	name = filepath.Join(dir, packager.ConventionalFileName(info))
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return name, packager.Package(info, f)
}

// info returns the description of the package.
func (l *layout) info() (*nfpm.Info, error) {
	libc, err := glibc(l.bin)
	if err != nil {
		return nil, err
	}
	info := &nfpm.Info{
		Name: "unifiedd", Arch: l.arch, Platform: "linux", Version: l.version, VersionSchema: "none", Release: "1", Section: "net", Priority: "optional",
		Maintainer: maintainer, Vendor: "The unifiedd authors", Homepage: "https://github.com/unifiedd/unifiedd", License: "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)",
		Description: description, MTime: l.at,
	}
	info.Contents, info.Umask = l.contents, 0o022
	info.Suggests = []string{"rdma-core"}
	switch l.format {
	case "deb":
		info.Depends = []string{"libc6 (>= " + libc + ")", "systemd | systemd-standalone-sysusers | systemd-sysusers", "systemd | systemd-standalone-tmpfiles | systemd-tmpfiles"}
		info.Suggests = append(info.Suggests, "ethtool", "wireshark-common")
		info.Deb.Compression = "gzip:9"
		info.License = "" // Debian has it in the file copyright
	case "rpm":
		info.Depends = []string{"glibc >= " + libc, "systemd"}
		info.RPM.BuildHost, info.RPM.Summary, info.RPM.Compression = "localhost", "Moves data between network, storage and remote memory", "gzip:9"
		info.RPM.Group, info.RPM.Packager = "System Environment/Daemons", maintainer
	}
	for phase, target := range map[string]*string{"preinst": &info.Scripts.PreInstall, "postinst": &info.Scripts.PostInstall, "prerm": &info.Scripts.PreRemove, "postrm": &info.Scripts.PostRemove} {
		text, err := scripts.ReadFile("scripts/" + l.format + "." + phase)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if *target = filepath.Join(l.work, l.format+"."+phase); os.WriteFile(*target, text, 0o755) != nil {
			return nil, fmt.Errorf("write %s", *target)
		}
	}
	return nfpm.WithDefaults(info), nil
}
