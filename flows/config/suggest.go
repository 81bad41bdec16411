package config

import "strings"

// maxWord is the longest word a suggestion is looked for.
const maxWord = 40

// suggest is the candidate word was probably meant to be, if there is one: the longer one of two, since letters are
// forgotten more often than they are invented.
func suggest(word string, candidates []string) (string, bool) {
	if len(word) > maxWord {
		return "", false
	}
	best, bound := "", min(max(1, len(word)/4), len(word)-1)
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d <= bound || best != "" && d == bound+1 && len(c) > len(best) {
			best, bound = c, d-1
		}
	}
	if best == "" {
		best = sameBeginning(word, candidates)
	}
	return best, best != ""
}

// sameBeginning is the first candidate which is the beginning of word, or has
// word as its own; three letters at least.
func sameBeginning(word string, candidates []string) string {
	for _, c := range candidates {
		n := min(len(word), len(c))
		if n >= 3 && strings.EqualFold(word[:n], c[:n]) {
			return c
		}
	}
	return ""
}

// didYouMean is the hint which goes with a suggestion.
func didYouMean(word string) string { return "did you mean " + quote(word) + "?" }

// distance is how many single-character edits, and swaps of neighbours, lead
// from a to b (optimal string alignment).
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	before, prev, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range s {
		row[0] = i + 1
		for j := range t {
			row[j+1] = min(prev[j+1]+1, row[j]+1, prev[j]+differ(s[i], t[j]))
			if i > 0 && j > 0 && s[i] == t[j-1] && s[i-1] == t[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(t)]
}

func differ(a, b rune) int {
	if a == b {
		return 0
	}
	return 1
}
