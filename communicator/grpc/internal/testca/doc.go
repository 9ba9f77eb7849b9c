// Package testca makes certificate authorities and certificates for tests, as files,
// in the form in which processes get them.
package testca
