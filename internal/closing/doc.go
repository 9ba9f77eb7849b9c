// Package closing is how a member of a cluster comes to its end, whatever the
// cluster is kept together by: it is drained, as long as whoever closes it has
// patience, and leaves at once after that.
package closing
