// Package testca makes authorities and certificates for tests, as files, the way
// that processes are given them.
package testca
