package grpc

// The reasons of statuses, for programs to read. The proto says what each means.

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	reasonDomain         = "orchestrator.v1"
	reasonIncarnation    = "INCARNATION"
	reasonMembershipOver = "MEMBERSHIP_OVER"
	reasonUnreachable    = "UNREACHABLE"
)

// explainedStatus returns the error of a call, with a reason unless that is empty.
func explainedStatus(code codes.Code, reason, text string) error {
	plain := status.New(code, text)
	if reason == "" {
		return plain.Err()
	}
	s, err := plain.WithDetails(&errdetails.ErrorInfo{Domain: reasonDomain, Reason: reason})
	if err != nil { // of codes.OK alone
		return plain.Err()
	}
	return s.Err()
}

// reasonOf returns the reason of a call's error; empty: it has none of ours.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == reasonDomain {
			return info.GetReason()
		}
	}
	return ""
}

// otherReason reports whether a call's error has a reason other than the one given,
// as the statuses of a later version may.
func otherReason(err error, reason string) bool {
	given := reasonOf(err)
	return given != "" && given != reason
}
