// Package mirror keeps a local copy of a range of keys, with one read and one watch.
// It never misses a change: if the watch fails, it reads again and reports the
// difference.
package mirror
