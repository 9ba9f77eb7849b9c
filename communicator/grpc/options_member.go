package grpc

// The options of NewMember.

// MemberOption is for [NewMember]. Every [Option] is one.
type MemberOption interface {
	applyMember(*memberSettings)
}

type memberSettings struct {
	settings
}
