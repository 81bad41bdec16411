package main

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gomodule "golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// layModule lays a version of the module out as a module proxy serves it (go.dev/ref/mod#goproxy-protocol), and returns the
// directory.
func layModule(t *testing.T, version string) (dir string) {
	t.Helper()
	tree, dir := filepath.Join(t.TempDir(), "tree"), t.TempDir()
	copyTree(t, "../..", tree)
	at := filepath.Join(dir, module, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list": version + "\n", version + ".info": `{"Version":"` + version + `","Time":"2026-11-29T00:00:00Z"}`, version + ".mod": string(mod)} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := modzip.CreateFromDir(f, gomodule.Version{Path: module, Version: version}, tree); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestModule: the daemon is installed, and a program with the client package is built, from a module proxy, as users do it.
// The modules in directories of this one are not in it.
func TestModule(t *testing.T) {
	long(t)
	const version = "v0.1.0"
	proxy := layModule(t, version)
	r, err := zip.OpenReader(filepath.Join(proxy, module, "@v", version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, f := range r.File {
		name := strings.TrimPrefix(f.Name, module+"@"+version+"/")
		for _, other := range []string{"packaging/", "internal/bench/", "selftests/browser/"} {
			if strings.HasPrefix(name, other) {
				t.Errorf("the module has %s, which is of another module", name)
			}
		}
	}
	cache := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	bin, work := t.TempDir(), t.TempDir()
	env := append(os.Environ(), "GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download"), "GOMODCACHE="+t.TempDir(), "GOBIN="+bin, "GOFLAGS=-modcacherw -trimpath", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOWORK=off")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = work, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("go", "install", module+"/cmd/unifiedd@"+version)
	if said := run(filepath.Join(bin, "unifiedd"), "version"); !strings.HasPrefix(said, "unifiedd 0.1.0, go") {
		t.Errorf("the installed program says %s", said)
	}
	run("go", "mod", "init", "example.com/program")
	text := "package main\n\nimport (\n\t\"fmt\"\n\n\t\"" + module + "/flows/client\"\n)\n\nfunc main() { fmt.Printf(\"%T\\n\", client.AppendConfig{}) }\n"
	if err := os.WriteFile(filepath.Join(work, "main.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run("go", "get", module+"/flows/client@"+version)
	if said := run("go", "run", "."); said != "client.AppendConfig\n" {
		t.Errorf("the program with the client package says %s", said)
	}
}
