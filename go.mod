module github.com/f8949c05/orchestrator

go 1.26.0
