// Package grpc stands for its floor.
package grpc
