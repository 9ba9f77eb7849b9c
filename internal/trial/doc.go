// Package trial puts real processes on trial, for tests: it starts this test's
// binary again as whatever is to be tested, kills it, stops it, and continues it;
// each process writes down what it runs, in one journal; and what was written is
// then held against the promise that no task ever runs in two places.
package trial
