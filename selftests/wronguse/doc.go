// Package wronguse has the test that uses each of the self-test programs wrongly.
package wronguse
