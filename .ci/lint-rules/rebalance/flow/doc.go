// Package flow stands for a part of the planner.
package flow
