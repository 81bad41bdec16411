package reference

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

const statusHead = `
# Status

` + "`unifiedd status -o json`" + ` and ` + "`/status`" + ` of the control socket have this document: a ` + "`Daemon`" + `. A field of another type has a
section of its own. Fields that are empty may be left out.
`

// Status returns the page about the document of the status, made of the sources of package status in a directory.
func Status(dir string) (string, error) {
	files, err := sources(dir)
	if err != nil {
		return "", err
	}
	found := make(map[string]*declared)
	for _, f := range files {
		for _, d := range f.Decls {
			collect(d, found)
		}
	}
	var b strings.Builder
	b.WriteString(made + statusHead)
	for _, name := range reachable("Daemon", found) {
		found[name].write(&b, name)
	}
	return b.String(), nil
}

// sources parses the files of a package, without its tests, in the order of their names.
func sources(dir string) (files []*ast.File, err error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".go") || strings.HasSuffix(n.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, n.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// declared is a struct of the document.
type declared struct {
	text   string
	fields *ast.FieldList
}

func collect(d ast.Decl, found map[string]*declared) {
	g, ok := d.(*ast.GenDecl)
	if !ok {
		return
	}
	for _, s := range g.Specs {
		t, ok := s.(*ast.TypeSpec)
		if !ok {
			continue
		}
		if s, ok := t.Type.(*ast.StructType); ok {
			text := g.Doc.Text()
			if t.Doc != nil {
				text = t.Doc.Text()
			}
			found[t.Name.Name] = &declared{text, s.Fields}
		}
	}
}

// reachable returns the structs that the fields of a struct lead to, itself first, each once.
func reachable(first string, found map[string]*declared) (all []string) {
	all = []string{first}
	for i := 0; i < len(all); i++ {
		for _, f := range found[all[i]].fields.List {
			ast.Inspect(f.Type, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && found[id.Name] != nil && !slices.Contains(all, id.Name) {
					all = append(all, id.Name)
				}
				return true
			})
		}
	}
	return all
}

func (d *declared) write(b *strings.Builder, name string) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n| field | type | meaning |\n| --- | --- | --- |\n", name, plain(d.text))
	for _, f := range d.fields.List {
		key, ok := jsonName(f)
		if !ok {
			continue
		}
		text := strings.TrimSpace(strings.TrimSpace(f.Doc.Text()) + " " + strings.TrimSpace(f.Comment.Text()))
		text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", key, typeName(f.Type), text)
	}
}

// plain returns a comment as Markdown.
func plain(text string) string {
	var p comment.Parser
	var out comment.Printer
	out.DocLinkURL = func(*comment.DocLink) string { return "" }
	out.HeadingID = func(*comment.Heading) string { return "" }
	return string(out.Markdown(p.Parse(text)))
}

// jsonName returns the key of a field in the document. Embedded structs have none.
func jsonName(f *ast.Field) (key string, ok bool) {
	if f.Tag == nil {
		return "", false
	}
	tag, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return "", false
	}
	key, _, _ = strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return key, key != "" && key != "-"
}

// typeName returns a type in the words of JSON, or the name of a struct.
func typeName(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.ArrayType:
		return "list of " + typeName(t.Elt)
	case *ast.MapType:
		return "map of " + typeName(t.Value)
	case *ast.SelectorExpr:
		if n := t.Sel.Name; n != "Time" && n != "Duration" {
			return n
		}
		return strings.ToLower(t.Sel.Name)
	case *ast.Ident:
		switch {
		case t.Name == "string" || t.Name == "bool":
			return t.Name
		case strings.HasPrefix(t.Name, "uint"), strings.HasPrefix(t.Name, "int"), strings.HasPrefix(t.Name, "float"):
			return "number"
		}
		return t.Name
	}
	return "value"
}
