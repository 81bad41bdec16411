package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxFileLines  = 600
	maxStatements = 60
	maxDocLines   = 40 // of a doc.go
)

// badSource lists the faults of one file of the tree: an import of unsafe in a file not named for
// it, imports in wrong groups, a file or function that is too long, a private word. Generated files are not checked. Test
// files may be long.
func badSource(name string) ([]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	bad := append(badUnsafe(name, file), mixedImports(fset, file)...)
	if strings.HasSuffix(name, "_test.go") {
		return bad, nil
	}
	most := maxFileLines
	if filepath.Base(name) == "doc.go" {
		most = maxDocLines
	}
	if n := bytes.Count(text, []byte("\n")); n > most {
		bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d", name, n, most))
	}
	return append(append(bad, longFuncs(fset, file)...), badNames(fset, file)...), nil
}

func badUnsafe(name string, file *ast.File) []string {
	if strings.HasSuffix(name, "_unsafe.go") || strings.HasSuffix(name, "_unsafe_test.go") {
		return nil
	}
	for _, imp := range file.Imports {
		if imp.Path.Value == `"unsafe"` {
			return []string{name + " imports unsafe: only *_unsafe.go and *_unsafe_test.go may"}
		}
	}
	return nil
}

// mixedImports reports imports that are not in three groups: the standard library, other modules,
// this module.
func mixedImports(fset *token.FileSet, file *ast.File) (bad []string) {
	last, end := 0, 0 // group and line of the import before
	for _, imp := range file.Imports {
		path := strings.Trim(imp.Path.Value, `"`)
		if path == "C" {
			continue
		}
		line, group := fset.Position(imp.Pos()).Line, importGroup(path)
		if apart := line > end+1; end > 0 && (group < last || (group != last) != apart) {
			bad = append(bad, fmt.Sprintf("%v: %s is in the wrong group of imports", fset.Position(imp.Pos()), path))
		}
		last, end = group, line
	}
	return bad
}

func importGroup(path string) int {
	first, _, _ := strings.Cut(path, "/")
	switch {
	case strings.HasPrefix(path, module):
		return 2
	case strings.Contains(first, "."):
		return 1
	}
	return 0
}

func longFuncs(fset *token.FileSet, file *ast.File) []string {
	var bad []string
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := statements(f); n > maxStatements {
			bad = append(bad, fmt.Sprintf("%v: %s has %d statements, more than %d", fset.Position(f.Pos()), f.Name.Name, n, maxStatements))
		}
	}
	return bad
}

// statements counts the statements of a function, without the blocks that hold them.
func statements(f *ast.FuncDecl) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		switch node.(type) {
		case *ast.BlockStmt, *ast.LabeledStmt:
		case ast.Stmt:
			n++
		}
		return true
	})
	return n
}
