/*
 * Two leaders, two workers, one task: lease, epoch and handover on etcd, as
 * specified by E2, E4, E5 and W5 in DESIGN.md, with the leader's behaviour from
 * T4, T7 and T8. README.md maps the names to the design; check.sh runs the model.
 *
 * A transaction is one step. A revision is compared only with the present one of
 * its key, and a key never has the same revision twice. So a process that
 * remembers a revision needs a single bit: whether it is still the key's. A
 * transaction in flight is forgotten once its comparison can no longer hold.
 * Nothing counts upwards, so runs of any length are checked.
 *
 *	-DNO_LEADER_GUARD      transactions of a leader do not compare the leader's key
 *	-DNO_TERM_FENCE        nor the revision of `term`
 *	-DNO_CLAIM             workers start what is assigned, and put `active` uncompared
 *	-DNO_GUARDED_DELETE    `active` is deleted without a comparison
 *	-DNO_SELF_FENCING      a lease can end while its worker's task runs
 *	-DNO_ASSIGNED_LISTED   List returns `active` alone
 *	-DNO_ASSIGNED_LEASE    `assigned` outlives the worker's lease
 *	-DNO_CAUTION           after an unknown outcome, the worker gets further writes in the same term (T7)
 *	-DNO_WITHDRAWAL        unclaimed tasks stay assigned
 *
 *	-DFAULTS=n             at most n faults; without it, any number
 *	-DLIVENESS             only the leader's mandatory steps, and `settles` to check
 */

#ifdef FAULTS
byte faults;
#define MAY       (faults < FAULTS)
#define FAULT     faults++
#else
#define MAY       true
#define FAULT     skip
#endif

/* ---- The keys in etcd. */

#define NOBODY 2
#define DEAD   3                /* the process has ended, its lease has not */
byte key = NOBODY;              /* the leader's key: its owner */
bool member[2];                 /* members/<worker>, and with it the worker's lease */
bool assigned[2], claimed[2];    /* assigned/<worker>/<task>, active/<worker>/<task> */

/* ---- Remembered revisions: whether they are still the key's. */

bool current[2];                /* by leader: its revision of term */
bool seen[2];                   /* by worker: its revision of assigned */
#define OUT    0
#define IN     1
#define OLD    2
byte view[4];                   /* by leader and worker: member unknown, current, gone */
#define VIEW(w)   view[2*l+(w)]

/* ---- What a leader remembers, and its phase in the term. */

#define NONE      0             /* what the leader assumes of a worker (T4) */
#define HAS       1
#define UNHEARD   2
byte mem[4];
#define MEM(w)    mem[2*l+(w)]
byte heard[2];                  /* workers that answered in this term without an unknown outcome since, as bits */
byte asked[2];                  /* workers still to list, as bits */
bool young[2];                  /* has had no term with workers yet */
#define WAITS     0             /* until the key is free */
#define BEGINS    1             /* begins a term */
#define LISTS     2
#define WRITES    3
#define ADDED     4             /* worker 0; 5: worker 1 */
#define REMOVED   6             /* worker 0; 7: worker 1 */
#define GOES_ON   8             /* has lost its key without knowing it */
byte phase[2];
#ifdef LIVENESS
byte avoid[2];                  /* T9: the worker that refused last, plus one */
#endif
#define PHASE     phase[l]

/* ---- Transactions in flight. Each may land or be lost at any later time. */

byte air;
#define PUT(w)    (1 << (w))    /* a leader puts assigned */
#define DEL(w)    (4 << (w))
#define WDR(w)    (16 << (w))   /* a withdrawal: delete assigned if active is absent */
#define TERM      64
byte back;
#define CLAIM(w)  (1 << (w))    /* a worker puts active */
#define END(w)    (4 << (w))    /* delete active */

/* ---- The workers. */

#define GONE      0             /* no process, or fenced and empty: joins once its old key is gone */
#define IDLE      1
#define SEEN      2             /* has seen assigned and accepts it */
#define CLAIMED   3
#define RUNNING   4
#define FENCING   5             /* past its deadline, stopping its task */
byte at[2];
bool runs[2];                    /* the task's function runs */
bool hung[2];                   /* accepts nothing, but keeps its lease alive */

/* ---- The transactions. */

#ifdef NO_LEADER_GUARD
#define HELD(l)   true
#else
#define HELD(l)   (key == l)
#endif
#ifdef NO_TERM_FENCE
#define NOW(l)    true
#else
#define NOW(l)    current[l]
#endif
#ifdef NO_ASSIGNED_LISTED
#define LISTED(w) claimed[w]
#else
#define LISTED(w) (assigned[w] || claimed[w])
#endif

inline scrub(l, then) {
	current[l] = false; heard[l] = 0; asked[l] = 0; young[l] = false;
	VIEW(0) = OUT; VIEW(1) = OUT;
	MEM(0) = NONE; MEM(1) = NONE;
#ifdef LIVENESS
	avoid[l] = 0;
#endif
	PHASE = then
}

inline forget(w) { seen[w] = false; back = back & ~CLAIM(w) }

inline put(w) { assigned[w] = true; forget(w) }

inline del(w) { assigned[w] = false; forget(w) }

inline withdraw(w) {
	if
	:: claimed[w]
	:: else -> del(w)
	fi
}

inline endclaim(w) {
	claimed[w] = false;
#ifndef NO_GUARDED_DELETE
	back = back & ~END(w)
#endif
}

inline term() {
	current[0] = false; current[1] = false;
#ifndef NO_TERM_FENCE
	air = air & TERM
#endif
}

/* Every transaction of a leader without its key fails and changes nothing. So
 * such a leader is a single state here, until it knows. */
inline depose() {
#ifndef NO_LEADER_GUARD
	air = 0;
#ifndef IN_FULL
	if
	:: key < NOBODY -> scrub(key, GOES_ON)
	:: else
	fi;
#endif
#endif
	key = NOBODY
}

inline lapse(w) {
	member[w] = false;
#ifndef NO_ASSIGNED_LEASE
	del(w);
#endif
	forget(w);
	endclaim(w);
	air = air & ~PUT(w);
	if
	:: view[w] == IN -> view[w] = OLD
	:: else
	fi;
	if
	:: view[2+w] == IN -> view[2+w] = OLD
	:: else
	fi
}

/* ---- A leader. */

#define HEARD(w)  (heard[l] & (1 << (w)))
#define UNHEAR(w) heard[l] = heard[l] & ~(1 << (w))
#define NEITHER   (MEM(0) == NONE && MEM(1) == NONE)
#define ONE(w)    (MEM(w) == HAS && MEM(1-(w)) == NONE)
#define BOTH      (MEM(0) == HAS && MEM(1) == HAS)
#define MINE      (HELD(l) && NOW(l))
#ifdef LIVENESS
#define OPEN(w)   (HEARD(w) && (avoid[l] != (w)+1 || !HEARD(1-(w))))
#define REFUSED(w) UNHEAR(w); avoid[l] = (w)+1
#else
#define OPEN(w)   HEARD(w)
#define REFUSED(w) UNHEAR(w)
#endif
#ifdef NO_CAUTION
#define UNKNOWN(w) skip
#else
#define UNKNOWN(w) UNHEAR(w)
#endif

#ifdef NO_WITHDRAWAL
#define OVERDUE(w) false
#else
#define OVERDUE(w) (assigned[w] && !claimed[w] && hung[w])
#endif

inline crash() {
	if
	:: key == l -> key = DEAD
	:: else
	fi;
	scrub(l, WAITS)
}

inline next() { heard[l] = 0; PHASE = BEGINS }

inline list(w) {
	asked[l] = asked[l] & ~(1 << (w));
	if
	:: VIEW(w) == OUT && member[w] -> VIEW(w) = IN; MEM(w) = (young[l] -> UNHEARD : NONE)
	:: VIEW(w) == OUT && !member[w]
	:: VIEW(w) == OLD -> VIEW(w) = OUT; MEM(w) = NONE
	:: VIEW(w) != OUT && MAY -> FAULT            /* silent: the assumption stays */
	:: VIEW(w) == IN && !OVERDUE(w) ->
		heard[l] = heard[l] | (1 << (w));
		MEM(w) = (LISTED(w) -> HAS : NONE)
#ifndef NO_WITHDRAWAL
	:: VIEW(w) == IN && (OVERDUE(w) || assigned[w] && !claimed[w] && MAY) ->
		heard[l] = heard[l] | (1 << (w));
		if
		:: MINE -> del(w); MEM(w) = NONE; REFUSED(w)
		:: MINE && MAY -> FAULT; air = air | WDR(w); MEM(w) = HAS
		:: !MINE -> MEM(w) = HAS
		fi
#endif
	fi;
	if
	:: asked[l] == 0 ->
		PHASE = WRITES;
		young[l] = young[l] && VIEW(0) != IN && VIEW(1) != IN
	:: else
	fi
}

/* If a later term has begun, the write fails and the term ends. */
inline add(w) {
	if
	:: !MINE -> next()
	:: MINE && VIEW(w) != IN -> UNHEAR(w)
	:: MINE && VIEW(w) == IN -> put(w); PHASE = ADDED + w
#ifdef NO_UNCERTAINTY
	:: MINE && VIEW(w) == IN && MAY -> FAULT; air = air | PUT(w); REFUSED(w)
#else
	:: MINE && VIEW(w) == IN && MAY -> FAULT; air = air | PUT(w); MEM(w) = HAS; UNKNOWN(w)
#endif
	fi
}

inline remove(w) {
	if
	:: !MINE -> next()
	:: MINE -> del(w); PHASE = REMOVED + w
	:: MINE && MAY -> FAULT; air = air | DEL(w); UNKNOWN(w)
	fi
}

/* Until the task is claimed or refused, or the time is over. */
inline added(w) {
	if
	:: claimed[w] -> MEM(w) = HAS
	:: !claimed[w] && !assigned[w] -> REFUSED(w)
	:: hung[w] -> giveup(w)
	:: MAY -> FAULT; giveup(w)
	fi;
	PHASE = WRITES
}

inline giveup(w) {
	if
#ifdef NO_WITHDRAWAL
	:: MEM(w) = HAS; UNKNOWN(w)
#else
	:: MINE && claimed[w] -> MEM(w) = HAS
	:: MINE && !claimed[w] -> del(w); REFUSED(w)
	:: MINE && MAY -> FAULT; air = air | WDR(w); MEM(w) = HAS; UNKNOWN(w)
	:: !MINE -> MEM(w) = HAS; UNKNOWN(w)
#endif
	fi
}

/* Until the task has stopped, or the time is over. */
inline removed(w) {
	if
	:: !claimed[w] -> MEM(w) = NONE
	:: claimed[w] && MAY -> FAULT; UNKNOWN(w)
	fi;
	PHASE = WRITES
}

proctype Leader(bit l)
{
	do
	:: atomic { PHASE == WAITS && key == NOBODY ->
		key = l; young[l] = true; PHASE = BEGINS;
		VIEW(0) = member[0]; MEM(0) = (member[0] -> UNHEARD : NONE);
		VIEW(1) = member[1]; MEM(1) = (member[1] -> UNHEARD : NONE)
		}

	/* The write of the term. Without an answer, the whole term fails. */
	:: atomic { PHASE == BEGINS && HELD(l) -> term(); current[l] = true; asked[l] = 3; PHASE = LISTS }
	:: atomic { PHASE == BEGINS && HELD(l) && MAY -> FAULT; air = air | TERM }

	/* Answers arrive in any order. */
	:: atomic { PHASE == LISTS && asked[l] & 1 -> list(0) }
	:: atomic { PHASE == LISTS && asked[l] & 2 -> list(1) }

	/* One change at a time: a missing task, a surplus one, a move. */
	:: atomic { PHASE == WRITES && NEITHER && OPEN(0) -> add(0) }
	:: atomic { PHASE == WRITES && NEITHER && OPEN(1) -> add(1) }
	:: atomic { PHASE == WRITES && BOTH && HEARD(0) -> remove(0) }
	:: atomic { PHASE == WRITES && BOTH && HEARD(1) -> remove(1) }
	:: atomic { PHASE == WRITES && ONE(0) && heard[l] == 3 && MAY -> FAULT; remove(0) }
	:: atomic { PHASE == WRITES && ONE(1) && heard[l] == 3 && MAY -> FAULT; remove(1) }
	:: atomic { PHASE == WRITES && (!(NEITHER || BOTH) || !heard[l]) -> next() }
	:: atomic { PHASE == WRITES && MAY -> FAULT; next() }
	:: atomic { PHASE == ADDED+0 && (claimed[0] || !assigned[0] || hung[0] || MAY) -> added(0) }
	:: atomic { PHASE == ADDED+1 && (claimed[1] || !assigned[1] || hung[1] || MAY) -> added(1) }
	:: atomic { PHASE == REMOVED+0 && (!claimed[0] || MAY) -> removed(0) }
	:: atomic { PHASE == REMOVED+1 && (!claimed[1] || MAY) -> removed(1) }

	:: atomic { PHASE != WAITS && key != l -> scrub(l, WAITS) }      /* it learns of the loss */
	:: atomic { PHASE != WAITS && MAY -> FAULT; crash() }
	od
}

/* ---- A worker, over all its incarnations. */

proctype Worker(bit w)
{
	do
	:: atomic { at[w] == GONE && !member[w] -> member[w] = true; at[w] = IDLE }

	:: atomic { at[w] == IDLE && assigned[w] && (!hung[w] || claimed[w]) -> at[w] = SEEN; seen[w] = true }

#ifdef NO_CLAIM
	:: atomic { at[w] == SEEN -> claimed[w] = true; at[w] = CLAIMED }
#else
	:: atomic { at[w] == SEEN ->
		if
		:: seen[w] -> claimed[w] = true; at[w] = CLAIMED
		:: !seen[w] -> at[w] = IDLE
		:: seen[w] && MAY -> FAULT; back = back | CLAIM(w); at[w] = IDLE   /* no answer */
		fi;
		seen[w] = false
		}
#endif

	:: atomic { at[w] == CLAIMED ->
		runs[w] = true;
		assert(!runs[1-w]);      /* never in two places */
		at[w] = RUNNING
		}

	:: atomic { at[w] == RUNNING && !assigned[w] -> runs[w] = false; at[w] = IDLE }

	:: atomic { at[w] == IDLE && claimed[w] && !assigned[w] ->
		if
		:: endclaim(w)
		:: MAY -> FAULT; back = back | END(w)
		fi
		}

	:: atomic { at[w] == IDLE && assigned[w] && !claimed[w] && !hung[w] && MAY -> FAULT; del(w) } /* refuses */

	/* Faults: a crash, a lease not renewed in time, a hang. */
	:: atomic { at[w] != GONE && MAY -> FAULT; at[w] = GONE; runs[w] = false; hung[w] = false; seen[w] = false }
	:: atomic { at[w] == RUNNING && MAY -> FAULT; at[w] = FENCING }
	:: atomic { at[w] == FENCING -> runs[w] = false; at[w] = GONE; hung[w] = false; seen[w] = false }
#ifdef LIVENESS
	:: atomic { at[w] != GONE && !hung[0] && !hung[1] && MAY -> FAULT; hung[w] = true }
#endif
	od
}

/* ---- The passing of time. */

#ifdef NO_SELF_FENCING
#define OVER(w)   (member[w] && (at[w] == GONE || at[w] == FENCING))
#else
#define OVER(w)   (member[w] && at[w] == GONE)
#endif

inline land(w) {
	if
	:: air & PUT(w) -> air = air & ~PUT(w); put(w)
	:: air & DEL(w) -> air = air & ~DEL(w); del(w)
	:: air & WDR(w) -> air = air & ~WDR(w); withdraw(w)
	:: back & CLAIM(w) -> back = back & ~CLAIM(w); claimed[w] = true
	:: back & END(w) -> back = back & ~END(w); endclaim(w)
	fi
}

proctype Time()
{
	do
	:: atomic { air & (PUT(0) | DEL(0) | WDR(0)) || back & (CLAIM(0) | END(0)) -> land(0) }
	:: atomic { air & (PUT(1) | DEL(1) | WDR(1)) || back & (CLAIM(1) | END(1)) -> land(1) }
	:: atomic { air & TERM -> air = air & ~TERM; term() }
	:: atomic { air || back -> air = 0; back = 0 } /* lost */
	:: atomic { OVER(0) -> lapse(0) }
	:: atomic { OVER(1) -> lapse(1) }
	:: atomic { key == DEAD -> depose() }
	:: atomic { (key == 0 || key == 1) && MAY -> FAULT; depose() }
	od
}

init {
	atomic { run Leader(0); run Leader(1); run Worker(0); run Worker(1); run Time() }
}

#ifdef LIVENESS
#define once      (runs[0] != runs[1])
ltl settles { <> [] once }
#endif
