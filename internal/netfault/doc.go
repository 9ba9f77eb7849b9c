// Package netfault is a TCP proxy for tests. Between a client and a server, it delays,
// cuts and resets connections, or closes one half of one. Most faults apply to one
// direction or both.
package netfault
