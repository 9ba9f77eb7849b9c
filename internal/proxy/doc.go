// Package proxy is a TCP proxy for tests: between a client and a server, it
// delays, throttles, cuts, closes halves, and lets one direction through, for all
// connections or for one.
package proxy
