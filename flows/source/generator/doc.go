// Package generator is a source that generates packets, to measure a sink alone.
package generator
