package grpc

// Certificates: where they come from, and whom they speak for.

// Credentials are the certificate and key of a process, and the authorities whose
// certificates it accepts.
type Credentials struct{}
