// Package documents has tests only: they start the daemon with the configurations of the README,
// the documents and the package as they stand.
package documents
