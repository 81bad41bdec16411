package archive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// keyring is the keyring for the archive's signatures. Package debian-archive-keyring has it.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt runs apt. Everything that it writes is in one directory.
type apt struct {
	dir string
}

// newApt prepares dir, an empty directory, for the suites of a mirror.
func newApt(dir, mirror string, suites ...string) (*apt, error) {
	if _, err := os.Stat(keyring); err != nil {
		return nil, fmt.Errorf("look for the archive's keys: %w (install debian-archive-keyring)", err)
	}
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "debs"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("prepare apt's directory: %w", err)
		}
	}
	for name, text := range map[string]string{"sources.list": sources(mirror, suites), "apt.conf": configuration(dir)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("prepare apt's directory: %w", err)
		}
	}
	return &apt{dir}, nil
}

// sources returns a sources.list(5) with the suites' main component.
func sources(mirror string, suites []string) string {
	var b strings.Builder
	for _, suite := range suites {
		fmt.Fprintf(&b, "deb [arch=amd64 signed-by=%s] %s %s main\n", keyring, strings.TrimSuffix(mirror, "/"), suite)
	}
	return b.String()
}

// configuration returns the settings that apt reads after the machine's own. They keep the
// machine's proxies, remove its hooks, and make apt fetch and verify with the user of this process,
// since another user could not write to the directory.
func configuration(dir string) string {
	return fmt.Sprintf(`#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
#clear Acquire::IndexTargets::deb::DEP-11;
Acquire::Languages "none";
Acquire::Retries "3";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
APT::Sandbox::User "";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "%[1]s/lists";
Dir::Cache "%[1]s/cache";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
`, dir)
}

func (a *apt) run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := command(ctx, program, append([]string{"-c", filepath.Join(a.dir, "apt.conf")}, args...)...)
	cmd.Dir = filepath.Join(a.dir, "debs")
	return finish(cmd)
}

// update fetches the lists of the suites.
func (a *apt) update(ctx context.Context) error {
	if _, err := a.run(ctx, "apt-get", "-q", "--error-on=any", "update"); err != nil {
		return fmt.Errorf("fetch the archive's lists: %w", err)
	}
	return nil
}

// closure returns the named packages, and those of their dependencies that match the expression.
func (a *apt) closure(ctx context.Context, match *regexp.Regexp, names ...string) ([]string, error) {
	for at := 0; at < len(names); at++ {
		text, err := a.run(ctx, "apt-cache", "depends", "--important", names[at])
		if err != nil {
			return nil, fmt.Errorf("ask what %s depends on: %w", names[at], err)
		}
		for _, name := range depends(text) {
			if match.MatchString(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// depends reads the answer of apt-cache depends.
func depends(text string) (names []string) {
	for line := range strings.Lines(text) {
		kind, name, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && (kind == "Depends" || kind == "PreDepends") {
			names = append(names, name)
		}
	}
	return names
}

// missing returns the packages to install so that the package works on this machine, including
// itself, each as name=version.
func (a *apt) missing(ctx context.Context, suite, name string) ([]string, error) {
	text, err := a.run(ctx, "apt-get", "-s", "-q", "--no-install-recommends", "--reinstall", "-t", suite, "install", name)
	if err != nil {
		return nil, fmt.Errorf("ask what %s needs: %w", name, err)
	}
	return installs(text), nil
}

// instLine matches a line that apt-get -s prints for a package. A version in brackets is the
// version to replace.
var instLine = regexp.MustCompile(`(?m)^Inst (\S+) (?:\[\S+\] )?\((\S+) `)

func installs(text string) (specs []string) {
	for _, m := range instLine.FindAllStringSubmatch(text, -1) {
		specs = append(specs, m[1]+"="+m[2])
	}
	return specs
}

// download fetches packages, verifies them, and returns their files.
func (a *apt) download(ctx context.Context, specs []string) ([]string, error) {
	if _, err := a.run(ctx, "apt-get", append([]string{"-q", "download"}, specs...)...); err != nil {
		return nil, fmt.Errorf("fetch %s: %w", strings.Join(specs, ", "), err)
	}
	files, err := filepath.Glob(filepath.Join(a.dir, "debs", "*.deb"))
	if err == nil && len(files) != len(specs) {
		err = fmt.Errorf("fetch %s: %d files came", strings.Join(specs, ", "), len(files))
	}
	return files, err
}

// unpack puts the files of packages under root.
func unpack(ctx context.Context, files []string, root string) error {
	for _, file := range files {
		if _, err := output(ctx, "dpkg", "-x", file, root); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}
