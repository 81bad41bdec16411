// Package generator is a source that makes packets, to measure a sink alone.
package generator
