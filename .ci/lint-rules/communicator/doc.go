// Package communicator stands for its floor.
package communicator
