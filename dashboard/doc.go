// Package dashboard shows an operator what the orchestrator of a fleet does and why: as
// pages for a browser, and as a JSON API, which the command orchctl uses. It is a plain
// [http.Handler] without other dependencies, and its links work beneath any path:
//
//	h, err := dashboard.New(dashboard.WithToken(token))
//	...
//	mux.Handle("/fleet/", http.StripPrefix("/fleet", h))
//	stop := dashboard.Lead(h, o) // when this process leads
//	defer stop()
//
// A process that does not lead, or was deposed, answers with status 503 and the address of the
// one that leads, if [WithLeader] is given.
//
// # What is shown
//
// Each answer shows one term, from [orchestrator.Orchestrator.Last], and the history up to
// it. The overview begins with what needs a person: one line for each cause, however many
// workers and tasks it concerns. A task's page says of each worker why it has the task or
// not. A what-if page shows what the next term would do if workers drained, were lost, fell
// silent or joined.
//
// Names of any type become text, see [history.NameText]: a string or an integer as it is, a name
// with the method MarshalText by that, and any other name as the verb %#v prints it. A text that is
// empty or has other than printable characters is in quotes, such as "a\n". So names that print alike
// are told apart. A what-if can add workers whose names are strings, have the method UnmarshalText, or
// are read by fmt.Sscan.
//
// The API is at api/v1/, its types are in package [api], and its OpenAPI document is at
// api/v1/openapi.json. Answers have an entity tag that changes when a term ends, so a client
// polls with If-None-Match. Errors are as in RFC 9457.
//
// # Security
//
// A handler without options answers only requests from the same machine, to a loopback
// address or on a Unix socket, that no proxy has forwarded. [WithToken] or [WithAuthorize]
// allow others. A proxy on the same machine that adds no header such as X-Forwarded-For makes
// every request look local: behind it, one of these options is needed. Nothing can be changed
// unless [WithDrain] is given, and then not from pages of another origin. Serve it over TLS if
// it has a token.
//
// # Costs
//
// Reading delays no term. An answer has at most 256 kB, whatever the number of workers and
// tasks; lists are cut and say their totals. With 10,000 workers and a million tasks, an
// answer takes up to 0.2 s of one core. What several requests need is computed by the first
// one after a term.
//
// What-if plans are computed one at a time. A page shows the plan of the first request with
// the same query after the term, so it counts a worker or task that was added since from the
// next term on. The API plans for each request, from the expectations at that moment.
package dashboard
