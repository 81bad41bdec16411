// Package reference makes the pages of docs/reference that say what the code has: each setting, each metric, each field of
// the status. Its test compares them with the files; with -update it writes them.
package reference

// made begins each page that is made of code, so that nobody changes it by hand.
const made = "<!-- Made from code by make generate: DO NOT EDIT. -->\n"
