// Package grpc carries assignments from one manager to its workers over gRPC.
package grpc
