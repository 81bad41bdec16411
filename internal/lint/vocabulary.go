package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// privateNames are names that only this project used, and the field's words for them. docs/reference/glossary.md has
// the words in use.
var privateNames = map[string]string{
	"adopt":      "take over, register or track",
	"christen":   "commit the name",
	"desert":     "cancel",
	"door":       "listener or acceptor",
	"doze":       "sleep",
	"farewell":   "final response, or a timeout",
	"foremost":   "primary",
	"furnish":    "init",
	"giveWay":    "apply the policy, or yield",
	"glance":     "poll interval, or summarize",
	"insight":    "health",
	"intake":     "source",
	"lament":     "report",
	"lastWord":   "final message",
	"letGo":      "release",
	"nap":        "sleep",
	"nonsense":   "protocol error",
	"outbox":     "sink",
	"overhang":   "spill",
	"parting":    "linger",
	"patience":   "timeout",
	"pile":       "pool",
	"reel":       "reader",
	"sated":      "over its share",
	"sayable":    "sendable",
	"seam":       "bounce buffer",
	"shelf":      "cache",
	"speechless": "stalled",
	"surrender":  "abandon",
	"takeFirst":  "fast receive",
	"tardy":      "late",
	"tender":     "a name for what it does",
	"weigh":      "charge",
}

// privateWords matches, in comments, those names that are not English words with another, technical sense.
var privateWords = regexp.MustCompile(`\b(christen(s|ed)?|dozes?|farewells?|lament(s|ed)?|naps?|overhangs?|reels?|sated|sayable|shel(f|ves)|speechless|tardy)\b`)

// badNames names the declarations and comments of a file that use a private word. A test file is not examined: its names stay in one package.
func badNames(fset *token.FileSet, file *ast.File) (bad []string) {
	report := func(at token.Pos, word, instead string) {
		bad = append(bad, fmt.Sprintf("%v: the word %s is used by this project only: %s", fset.Position(at), word, instead))
	}
	for _, name := range declared(file) {
		if instead, ok := privateNames[strings.ToLower(name.Name[:1])+name.Name[1:]]; ok {
			report(name.Pos(), name.Name, "say "+instead)
		}
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if word := privateWords.FindString(c.Text); word != "" {
				report(c.Pos(), word, "see docs/reference/glossary.md")
			}
		}
	}
	return bad
}

// declared returns the names that a file declares, locals included.
func declared(file *ast.File) (names []*ast.Ident) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if name, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}
