// Package grpctest provides test helpers for the packages below communicator/grpc.
package grpctest
