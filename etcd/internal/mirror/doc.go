// Package mirror keeps a local copy of a range of keys, from one read and one
// watch, and never loses a change on the way: where the watch cannot go on, it
// reads again and hands out the difference.
package mirror
