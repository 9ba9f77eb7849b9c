// Package backendtest checks that a replica.Backend keeps its contract: the clauses B1 to B5 and B7,
// and O4, or O5 and O9 if the backend is piecewise, of package replica's documentation. B6 is the
// leader's affair. It also checks that replica.Lead elects over the backend. The package needs only
// package testing.
package backendtest
