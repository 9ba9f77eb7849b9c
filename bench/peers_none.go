//go:build !peers

package main

const hasPeers = false

func peers(config) []planner { return nil }

func compareSubscriptions(config) ([]subscribed, error) { return nil, nil }
