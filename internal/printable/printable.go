// Package printable prints texts that others have chosen: peers, disks, programs and other users of the machine. Such a
// text can have escape sequences, which change what a terminal shows or does, and line feeds, with which it looks like a
// line of ours. Any goroutine may call the functions.
package printable

import (
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text as it is if all of it can be printed, and otherwise quoted as in Go.
func Text(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, bad) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// Lines is Text for each line of a text that may have several, and tabs.
func Lines(s string) string {
	if clean := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, s); Text(clean) == clean {
		return s
	}
	all := strings.Split(s, "\n")
	for i, line := range all {
		if clean := strings.ReplaceAll(line, "\t", " "); Text(clean) != clean {
			all[i] = strconv.Quote(line)
		}
	}
	return strings.Join(all, "\n")
}

// Only returns the first most bytes of a text without what cannot be printed.
func Only(s string, most int) string {
	return strings.Map(func(r rune) rune {
		if bad(r) {
			return -1
		}
		return r
	}, s[:min(len(s), most)])
}

func bad(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

// Document applies Text to all strings in a document: a pointer to a struct, slice or map, with keys of maps. Texts in
// fields named Error may have several lines, and are treated as Lines treats them.
func Document(pointer any) { walk(reflect.ValueOf(pointer), Text) }

func walk(v reflect.Value, text func(string) string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			walk(v.Elem(), text)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(text(v.String()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			of, field := text, v.Type().Field(i)
			if !field.IsExported() {
				continue
			}
			if field.Name == "Error" {
				of = Lines
			}
			walk(v.Field(i), of)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			walk(v.Index(i), text)
		}
	case reflect.Map:
		walkMap(v, text)
	}
}

// walkMap replaces the entries of a map, whose keys and values cannot be changed in place.
func walkMap(v reflect.Value, text func(string) string) {
	for _, key := range v.MapKeys() {
		k, one := reflect.New(key.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
		k.Set(key)
		one.Set(v.MapIndex(key))
		walk(k, text)
		walk(one, text)
		v.SetMapIndex(key, reflect.Value{})
		v.SetMapIndex(k, one)
	}
}
