// Package keys says where everything lies in etcd: the layout of the keys under
// one prefix, and how names become parts of keys.
//
//	<prefix>format                      what the prefix is used by
//	<prefix>registry/<task>             the content given
//	<prefix>tasks/<task>                its settings; absent: the defaults
//	<prefix>members/<worker>            attributes and incarnation, leased
//	<prefix>workers/<worker>            its load, leased
//	<prefix>assigned/<worker>/<task>    what the leader wants there
//	<prefix>active/<worker>/<task>      what the worker has claimed
//	<prefix>refused/<worker>/<task>     why the worker did not take it
//	<prefix>drains/<worker>             that the worker is to end empty
//	<prefix>term                        the number of the last term
//	<prefix>leader/<lease>              the candidates, the oldest of which leads
package keys
