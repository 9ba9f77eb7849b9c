package grpc

// The options of NewManager.

// ManagerOption is for [NewManager]. Every [Option] is one.
type ManagerOption interface {
	applyManager(*managerSettings)
}

type managerSettings struct {
	settings
}
