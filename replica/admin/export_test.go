package admin

// Problems is problems, for tests.
var Problems = problems
