// Package grpctest has what the tests of several packages share.
package grpctest
