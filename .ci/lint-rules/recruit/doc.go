// Package recruit stands for its floor.
package recruit
