// Package wire converts between the messages of package orchestratorv1 and values:
// reports, results, failures, and errors with their reasons.
//
// Messages of workers are decoded with care (codec.go, report.go), because protobuf
// allocates a structure for each empty submessage, that is, for every two bytes. So any
// message takes at most a few times its length in memory.
package wire
