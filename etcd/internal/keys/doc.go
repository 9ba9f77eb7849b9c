// Package keys defines the layout of the keys in etcd under one prefix, and how
// names are escaped in keys.
//
//	<prefix>format                      identifies the user of the prefix
//	<prefix>registry/<task>             the content of a task
//	<prefix>tasks/<task>                its settings; absent: the default
//	<prefix>members/<worker>            attributes and incarnation, leased
//	<prefix>workers/<worker>            its load, leased
//	<prefix>assigned/<worker>/<task>    an assignment by the leader, leased
//	<prefix>active/<worker>/<task>      a claim of the worker, leased
//	<prefix>refused/<worker>/<task>     a refusal of the worker, leased
//	<prefix>drains/<worker>             the worker must drain
//	<prefix>term                        the number of the last term
//	<prefix>begun                       the same, in the range that a leader watches
//	<prefix>leader/<lease>              the candidates, the oldest of which leads
package keys
