// Package membership runs a worker as a member, independent of the transport. A [Runner]
// joins with retries, keeps the membership, announces that the worker drains, and leaves. If
// the membership is lost, it joins again. Package manager supplies the [Transport].
//
// A session is one membership, from Open to Leave. Its steps, in order:
//
//  1. Open begins the session.
//  2. Join retries until the worker is a member.
//  3. Keep keeps the membership. The session ends if Keep fails, if the lease may
//     have expired, or with the context of Run.
//  4. After [Runner.Close], Announce asks the leader to move the tasks. The session
//     ends when all tasks have moved, or when no other member can take them.
//  5. The tasks stop, under the lease for as long as it lasts. Everything that the
//     session has started ends.
//  6. Leave ends the membership.
//
// A session that is not the last is followed by a pause (package backoff) and another
// session, in which the worker has another incarnation.
package membership
