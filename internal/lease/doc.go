// Package lease tells a lease holder when its lease can have ended at the
// coordinator that granted it. Its clock also runs while the machine is suspended,
// if the operating system has such a clock.
package lease
