// Package lease tells when a lease can have ended at whoever granted it. Its
// clock goes on while the machine is suspended, where the operating system has
// one that does.
package lease
