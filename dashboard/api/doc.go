// Package api has the types of the dashboard's JSON API. Command orchctl reads them; so can
// any other Go program.
//
// All answers are bounded. An answer that is cut says the true totals. Durations are in
// nanoseconds, and times are in the format of RFC 3339.
package api
