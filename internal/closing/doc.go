// Package closing closes a member of a cluster, independent of the transport. The
// member is drained until the context of Close ends, and then leaves immediately.
package closing
