// Package wronguse has the test that runs each test program in wrong ways.
package wronguse
