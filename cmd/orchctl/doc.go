// Orchctl shows and steers a fleet through its dashboard: the API of package dashboard, which also
// renders the tables.
//
//	orchctl -server http://127.0.0.1:8080 status
//	orchctl why tenant-013
//	orchctl what-if -drain worker-03 -lose worker-08
//	orchctl drain worker-03
//
// The environment variables ORCHCTL_SERVER and ORCHCTL_TOKEN_FILE take the place of -server
// and -token-file. Run orchctl help for all commands and flags.
//
// # Servers
//
// With several addresses in -server, separated by commas, orchctl asks each in turn until one
// leads. If a process answers that another one leads, orchctl asks that one. It sends the
// token only to the addresses in -server, and to https addresses with a certificate of the
// authority in -ca. With a token, an http address in -server must be of the same machine
// unless -insecure-token is given.
//
// # Names
//
// A name that is empty or has other than printable characters is shown in quotes, such as "a\n".
// Each command prints and takes names so. After -- a name may begin with a hyphen.
//
// # Output
//
// Tables, JSON and names go to the standard output, and everything else to the standard error.
// A table fits the width of the terminal. There are colours only on a terminal, and none if
// NO_COLOR is set. Control and bidirectional characters in names and errors are shown as
// escape sequences, such as \u202e, in each format.
//
// # Exit codes
//
//	0  done
//	1  failed or refused
//	2  wrong usage
//	3  no such worker or task
//	4  no address answers, or no process leads
//	5  status -check found a problem, or no term has ended yet
//	6  the wait ended before the workers were empty
package main
