/*
 * Replicas that share one task through a table: members, evictions, epochs and
 * fences, as specified by A1 to A10 and B1 to B7, with the leader's behaviour from
 * T4 and the worker's from W4 and W5. README.md maps the names to the contract;
 * check.sh runs the model. lease.pml proves what this model takes for granted of time.
 *
 * A worker has several lives: each time it joins it has a new ID. Lives are named
 * by the order in which they join, since nothing else tells them apart. A
 * leadership is named by the order of the campaigns. Nothing else counts, so runs of
 * any length with that many lives and campaigns are checked.
 *
 *	-DNO_JOIN_FENCE        the first Sync does not raise the worker's fence (A1)
 *	-DNO_LIST_FENCE        List does not raise it (C7)
 *	-DSILENT_IS_EMPTY      a new leader does not wait for the members that it found (T4)
 *	-DNO_SELF_FENCING      a member is evicted while its task runs (W5)
 *	-DREAD_FIRST           a candidate reads the members before it campaigns (B4)
 *	-DANY_SERVER           a leader starts with the first View that shows it leading (B4, A9)
 *	-DSAME_EPOCHS          a campaign may get an epoch that was lost (B3)
 *	-DCAMPAIGN_UNCONFIRMED campaigns do not wait for Confirm (B7)
 *	-DEVICT_UNCONFIRMED    evictions do not wait for Confirm (B7)
 *	-DSTAY_AT_OTHER_SERVER a leader continues with another Server (A9)
 *	-DNO_LEADER_LEASE      a leader continues without a Sync for a lease (A9)
 *	-DEVICT_UNCALLABLE     a leader evicts a live member that it cannot call (A10)
 *	-DSAME_ID              a first Sync without an answer is repeated with the same ID (A1)
 *	-DNO_HOLD              a member without a record is taken for gone (B6)
 *	-DNO_MEMORY            removals are not remembered (B2)
 *	-DTWO_SYNCS            a leader may process a View after a later one (B1)
 *	-DBY_HAND              one record is deleted by hand, while no leader changes
 *
 *	-DTWO_STEPS            a Sync writes, and reads later; otherwise it is one step
 *	-DLIVES=n -DEPOCHS=n   2 or 3, and 2, 3 or 5; 2 each if not given
 *	-DLOSSES=n             how often the table loses data: once if not given
 *
 *	-DLIVENESS             only mandatory steps, and faults, of which -DFAULTS=n may happen
 *	-DNO_RETIREMENT        uncallable members are not retired (A10)
 *	-DNO_DOUBT             only a member that the leader never heard is retired
 *	-DNO_RETIREMENT_ALONE  nor by a leader that no other member answers
 *	-DNO_PASSIVE           no leader becomes passive (A7)
 *	-DONE_GRADE            a leader without Source does not yield to one that has few answers
 *	-DPASSIVE_NEVER_STANDS a passive replica never campaigns
 *	-DNO_SECOND_CAMPAIGN   a replica that stopped leading does not campaign again (A3)
 *	-DNO_HIGHER_EPOCH      no campaign because of an epoch above the table's (A3)
 *	-DREFUSE_UNKNOWN       a Sync with an ID that the table does not know fails (B2)
 */

#ifndef LIVES
#define LIVES 2
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

#ifdef LIVENESS
byte faults;                    /* that may still happen */
#define MAY       (faults > 0)
#define FAULT     faults--
#else
#define MAY       true
#define FAULT     skip
#endif

/* ---- The table. A set of lives is a byte. */

#define BIT(i)    (1 << (i))

byte epoch;                     /* 0: none */
byte records, removed;          /* members; removals that the table remembers */
byte server;
bool confirmed = true;
byte published, synced;         /* since the last loss: its Sync was written; was answered */
byte top;                       /* the highest epoch ever */
#ifdef BY_HAND
bool deleted;
#endif

/* ---- The workers, by life. */

byte joining;                   /* the first Sync is under way */
byte serving;                   /* takes calls */
byte stopped;                   /* everything has stopped, for ever */
byte runs;                      /* the task's function runs */
byte fence[LIVES];

/* ---- The leaders, by leadership. */

#define NONE      0
#define ELECTED   1             /* campaigned, and has not read the members; with READ_FIRST: the reverse */
#define LEADS     2
#define DONE      3
byte phase[EPOCHS], num[EPOCHS], elected[EPOCHS];       /* num: its epoch; elected: by which Server */
byte unheard[EPOCHS];           /* members of its first View that have not answered: may run the task (T4) */
byte late[EPOCHS];              /* members since then that have not answered */
byte free[EPOCHS], has[EPOCHS]; /* the others, by what the leader assumes */
byte air[EPOCHS];               /* Adds in flight */
#ifdef TWO_SYNCS
bool reads[EPOCHS];             /* a second Sync has read the members */
byte found[EPOCHS];
#endif

#define KNOWN     (unheard[e] | late[e] | free[e] | has[e])

/* ---- The rules. */

#ifdef NO_JOIN_FENCE
#define JOIN_FENCE(i) skip
#else
#define JOIN_FENCE(i) raise(i, epoch)
#endif
#ifdef NO_LIST_FENCE
#define LIST_FENCE(i) skip
#else
#define LIST_FENCE(i) raise(i, num[e])
#endif
#ifdef SILENT_IS_EMPTY
#define WAITED    true
#else
#define WAITED    (unheard[e] == 0)
#endif
#ifdef NO_HOLD
#define VANISHED  (~records)
#else
#define VANISHED  (removed | ~records & stopped)        /* held for a lease: then its worker has stopped */
#endif
#ifdef STAY_AT_OTHER_SERVER
#define SAME_SERVER true
#else
#define SAME_SERVER (elected[e] == server)
#endif
#ifdef NO_MEMORY
#define REMEMBER(m) skip
#else
#define REMEMBER(m) removed = removed | (m)
#endif
#ifdef REFUSE_UNKNOWN
#define REFUSED(i) (~records & BIT(i))
#else
#define REFUSED(i) (removed & BIT(i))
#endif
#if defined BY_HAND
#define OPEN      (confirmed && !(serving & ~synced))
#elif defined CAMPAIGN_UNCONFIRMED
#define OPEN      true
#else
#define OPEN      confirmed
#endif
#ifdef TWO_STEPS
#define READ_NOW  skip
#define THEN      ELECTED
#else
#define READ_NOW  unheard[e] = records
#define THEN      LEADS
#endif

/* ---- What only liveness needs. */

#ifdef LIVENESS
byte candidates;                /* may lead */
byte passive, sourceless;       /* lead no more: few members answer, or no Source (A7) */
byte retired;                   /* their Syncs fail (A10) */
byte deaf, dry;                 /* faults: only the process itself can call it; its Source never answers */
byte leader;                    /* View.Leader: the leadership, plus one */
byte who[EPOCHS];               /* the life whose process leads */

#define JOINED    (joining | serving)
#define COMES     (!((JOINED | stopped) & 4))           /* the third life, a candidate */
#define READY     candidates
#define SPARE(i)  (candidates & JOINED & ~BIT(i) || i != 2 && COMES)
#define SETLEADER(l) leader = l
#define LEADING   (phase[e] == LEADS && !(stopped & BIT(who[e])))
#define LEARN(i)  raise(who[e], fence[i])
#define CALLED(i) (BIT(i) & (~deaf | BIT(who[e])))
#define DOUBTED   (has[e] & ~air[e] & ~runs)            /* an Add that had no answer */
#define SOURCE    (!(dry & BIT(who[e])))
#define LOSSLESS(i) assert(!(runs & BIT(i)))            /* a loss stops no task */
#else
#define READY     true
#define SPARE(i)  true
#define SETLEADER(l) skip
#define LEADING   (phase[e] == LEADS)
#define LEARN(i)  skip
#define CALLED(i) BIT(i)
#define DOUBTED   has[e]
#define SOURCE    true
#define LOSSLESS(i) skip
#endif

/* ---- A worker, in one life. */

#define BEFORE(i) (i == 0 || (joining | serving | stopped) & BIT(i-1))
#define JOINS(i)  (READY && !((joining | serving | stopped) & BIT(i)) && BEFORE(i) && (i < 2 || stopped))

inline raise(i, to) {
	if
	:: fence[i] < to -> fence[i] = to
	:: else
	fi
}

inline publish(i) { records = records | BIT(i); published = published | BIT(i) }

inline remove(m) { records = records & ~(m); REMEMBER(m) }

/* Calls in flight to it are refused. */
inline stop(i) {
	joining = joining & ~BIT(i); serving = serving & ~BIT(i); stopped = stopped | BIT(i);
	published = published & ~BIT(i); synced = synced & ~BIT(i);
	runs = runs & ~BIT(i); fence[i] = 0;
	air[0] = air[0] & ~BIT(i); air[1] = air[1] & ~BIT(i)
#if EPOCHS > 2
	; air[2] = air[2] & ~BIT(i)
#endif
#if EPOCHS > 3
	; air[3] = air[3] & ~BIT(i); air[4] = air[4] & ~BIT(i)
#endif
}

active [LIVES] proctype Life()
{
	byte i = _pid;
	do
	/* The first Sync. All its steps see one Server. */
#ifdef TWO_STEPS
	:: d_step { JOINS(i) -> publish(i); joining = joining | BIT(i) }
	:: d_step { joining & BIT(i) ->
		if
		:: published & BIT(i) ->
			joining = joining & ~BIT(i); serving = serving | BIT(i);
			synced = synced | BIT(i); JOIN_FENCE(i)
#ifdef SAME_ID
		:: else -> publish(i)
#elif defined LIVENESS
		:: else -> joining = joining & ~BIT(i); records = records & ~BIT(i)    /* the new ID takes its place */
#else
		:: else -> stop(i)
#endif
		fi }
#else
	:: d_step { JOINS(i) -> publish(i); synced = synced | BIT(i); serving = serving | BIT(i); JOIN_FENCE(i) }
#endif

	/* A Sync after the table has lost something. The others change nothing. */
	:: d_step { serving & ~published & BIT(i) ->
		if
		:: REFUSED(i) -> LOSSLESS(i); stop(i)
		:: else -> publish(i)
		fi
#ifndef TWO_STEPS
		;
		if
		:: published & BIT(i) -> synced = synced | BIT(i); raise(i, epoch)
		:: else
		fi
#endif
		}
#ifdef TWO_STEPS
	:: d_step { serving & published & ~synced & BIT(i) -> synced = synced | BIT(i); raise(i, epoch) }
#endif

	/* It crashes, its lease ends, or it drains. */
	:: d_step { (joining | serving) & BIT(i) && MAY && SPARE(i) -> FAULT; stop(i) }

	/* A Sync of a life that has stopped arrives late. */
	:: d_step { stopped & ~records & ~removed & BIT(i) && MAY -> FAULT; records = records | BIT(i) }

#ifdef LIVENESS
	:: d_step { serving & retired & BIT(i) -> stop(i) }
	:: d_step { JOINED & ~deaf & BIT(i) && MAY -> FAULT; deaf = deaf | BIT(i) }
	:: d_step { JOINED & ~deaf & BIT(i) && i == 2 && stopped & deaf -> deaf = deaf | BIT(i) }      /* like its last life */
	:: d_step { serving & candidates & BIT(i) && !dry && MAY && (candidates & JOINED & ~BIT(i) || stopped && i != 2) -> FAULT; dry = BIT(i) }
#else
	/* It leaves, or is evicted. Leaving does not wait for Confirm, so this is both. */
	:: d_step { stopped & ~removed & BIT(i) -> remove(BIT(i)) }
#ifdef NO_SELF_FENCING
	:: d_step { serving & records & BIT(i) && confirmed -> remove(BIT(i)) }
#endif
#ifdef EVICT_UNCONFIRMED
	:: d_step { serving & records & ~published & BIT(i) -> remove(BIT(i)) }      /* the record has an old heartbeat */
#endif
#ifdef NO_MEMORY
	/* Evicted, since its first Sync had no answer for a lease. */
	:: d_step { joining & published & BIT(i) && confirmed -> records = records & ~BIT(i); published = published & ~BIT(i) }
#endif
#endif
	od
}

/* ---- A leadership. */

#define FRESH(n)  (num[0] != n && num[1] != n)
#define NEXT      (phase[e] == NONE && (e == 0 || phase[e-1] != NONE))

inline claim(to) {
	num[e] = to; epoch = to; SETLEADER(e+1);
	if
	:: to > top -> top = to
	:: else
	fi
}

inline out(m) {
	unheard[e] = unheard[e] & ~(m); late[e] = late[e] & ~(m);
	free[e] = free[e] & ~(m); has[e] = has[e] & ~(m)
}

inline resign() { out(255); elected[e] = 0; phase[e] = DONE }

inline is_free(i) { out(BIT(i)); free[e] = free[e] | BIT(i) }

inline is_there(i) { out(BIT(i)); has[e] = has[e] | BIT(i) }

/* A call and its answer are one step, but for Add. ErrDeposed ends the leadership. */
inline list(i) {
	if
	:: fence[i] > num[e] -> LEARN(i); resign()
	:: else ->
		LIST_FENCE(i);
		air[e] = air[e] & ~BIT(i);      /* fenced by the term's number */
		if
		:: runs & BIT(i) -> is_there(i)
		:: else -> is_free(i)
		fi
	fi
}

inline add(i) {
	is_there(i);
	if
	:: stopped & BIT(i)
	:: else -> air[e] = air[e] | BIT(i)
	fi
}

inline added(i) {
	air[e] = air[e] & ~BIT(i);
	if
	:: fence[i] > num[e] && phase[e] == LEADS -> LEARN(i); resign()
	:: fence[i] > num[e] && phase[e] != LEADS
	:: else ->
		raise(i, num[e]);
		assert(!(runs & ~BIT(i)));      /* never twice */
		runs = runs | BIT(i)
	fi
}

inline removes(i) {
	if
	:: fence[i] > num[e] -> LEARN(i); resign()
	:: else -> raise(i, num[e]); runs = runs & ~BIT(i); is_free(i)
	fi
}

#define CALLS(i) \
	:: d_step { LEADING && (unheard[e] | late[e] | DOUBTED) & serving & CALLED(i) -> list(i) } \
	:: d_step { LEADING && has[e] == 0 && WAITED && SOURCE && free[e] & BIT(i) -> add(i) } \
	:: d_step { air[e] & serving & CALLED(i) -> added(i) } \
	:: d_step { LEADING && has[e] & ~air[e] & serving & BIT(i) && MAY -> FAULT; removes(i) }

#ifdef LIVENESS

/* Another live candidate that is not in m. */
#define OTHER(c, m) (candidates & serving & ~(m) & ~BIT(c))
#ifdef ONE_GRADE
#define NO_SOURCE passive
#else
#define NO_SOURCE sourceless
#endif
#ifdef PASSIVE_NEVER_STANDS
#define STANDS(c) (~passive & BIT(c))
#else
#define STANDS(c) (~passive & BIT(c) || !OTHER(c, passive))
#endif
#ifdef NO_HIGHER_EPOCH
#define BEHIND(c) false
#else
#define BEHIND(c) (fence[c] > epoch)
#endif
#define LED       who[leader-1]
#ifdef NO_SECOND_CAMPAIGN
#define STOPPED_LEADING(c) false
#else
#define STOPPED_LEADING(c) (LED == c && phase[leader-1] == DONE)
#endif
#define WORSE(c)  (passive & BIT(LED) && ~passive & BIT(c) || sourceless & BIT(LED) && ~sourceless & BIT(c))
#define VACANT(c) (leader == 0 || (stopped | ~records) & BIT(LED) || WORSE(c) || BEHIND(c) || STOPPED_LEADING(c))
#define STANDS_NOW(c) (NEXT && OPEN && candidates & serving & synced & BIT(c) && STANDS(c) && VACANT(c))

inline win(c, to) {
	claim(to); who[e] = c; elected[e] = server; READ_NOW; phase[e] = THEN;
	assert(e < EPOCHS - 1)          /* elections end */
}

#define CAMPAIGN(c) \
	:: d_step { STANDS_NOW(c) -> win(c, top/2*2 + 2) } \
	:: d_step { STANDS_NOW(c) && top >= 2 && epoch < top-1 && fence[c] < top-1 && FRESH(top-1) -> win(c, top-1) } \
	:: d_step { STANDS_NOW(c) && top >= 4 && epoch < top-3 && fence[c] < top-3 && FRESH(top-3) -> win(c, top-3) }

/* At least half of the other members answer: there are two at most. */
#define OTHERS    (KNOWN & serving & ~BIT(who[e]))
#define HALF      (OTHERS == 0 || OTHERS & ~deaf)
#ifdef NO_RETIREMENT_ALONE
#define ALONE     false
#else
#define ALONE     (!OTHER(who[e], passive))
#endif
#ifdef NO_DOUBT
#define BLOCKS    unheard[e]
#else
#define BLOCKS    (unheard[e] | DOUBTED)
#endif
#ifdef NO_RETIREMENT
#define RETIRE(i)
#else
#define RETIRE(i) \
	:: d_step { LEADING && SAME_SERVER && BLOCKS & serving & records & ~retired & BIT(i) & ~CALLED(i) && (HALF || ALONE) -> retired = retired | BIT(i) }
#endif
#define LOSE(i) \
	:: d_step { air[e] & BIT(i) & ~CALLED(i) -> air[e] = air[e] & ~BIT(i) } \
	:: d_step { air[e] & BIT(i) && MAY -> FAULT; air[e] = air[e] & ~BIT(i) }

#endif

active [EPOCHS] proctype Leader()
{
	byte e = _pid - LIVES;
	do
	/* B3: above the table's epoch, and unlike any other. An epoch that was lost may be higher. */
#ifdef LIVENESS
	CAMPAIGN(0)
	CAMPAIGN(1)
	CAMPAIGN(2)
#elif defined READ_FIRST
	:: d_step { NEXT && OPEN -> elected[e] = server; unheard[e] = records; phase[e] = ELECTED }
	:: d_step { phase[e] == ELECTED && OPEN && elected[e] == server -> claim(top/2*2 + 2); phase[e] = LEADS }
#else
	:: d_step { NEXT && OPEN -> claim(top/2*2 + 2); elected[e] = server; READ_NOW; phase[e] = THEN }
	:: d_step { NEXT && OPEN && top >= 2 && epoch < top-1 && FRESH(top-1) -> claim(top-1); elected[e] = server; READ_NOW; phase[e] = THEN }
	:: d_step { NEXT && OPEN && top >= 4 && epoch < top-3 && FRESH(top-3) -> claim(top-3); elected[e] = server; READ_NOW; phase[e] = THEN }
#ifdef SAME_EPOCHS
	:: d_step { NEXT && OPEN && epoch < top -> claim(top); elected[e] = server; READ_NOW; phase[e] = THEN }
#endif
#endif

	/* The first View: of the same Sync, or of a later one if that had no answer. */
#if defined TWO_STEPS && !defined READ_FIRST
	:: d_step { phase[e] == ELECTED ->
		if
#ifdef ANY_SERVER
		:: elected[e] = server; unheard[e] = records; phase[e] = LEADS
#else
		:: elected[e] == server -> unheard[e] = records; phase[e] = LEADS
		:: else -> resign()
#endif
		fi }
#endif

	/* A later View. It does not tell the leader of another leader: only ErrDeposed does. */
	:: d_step { LEADING && SAME_SERVER && (records & ~KNOWN || KNOWN & VANISHED) ->
		late[e] = late[e] | (records & ~KNOWN); out(VANISHED) }

#ifdef TWO_SYNCS
	:: d_step { LEADING && SAME_SERVER && !reads[e] -> reads[e] = true; found[e] = records }
	:: d_step { LEADING && reads[e] ->
#ifdef NO_HOLD
		out(~found[e]);
#endif
		late[e] = late[e] | (found[e] & ~KNOWN); reads[e] = false; found[e] = 0 }
#endif

	CALLS(0)
	CALLS(1)
#if LIVES > 2
	CALLS(2)
#endif

	/* It crashes, sees another Server or leader, or had no Sync acknowledged for a lease. */
	:: d_step { LEADING && MAY -> FAULT; resign() }

#ifdef EVICT_UNCALLABLE
	:: d_step { LEADING && SAME_SERVER && confirmed && unheard[e] & serving & records & 1 -> remove(1) }
	:: d_step { LEADING && SAME_SERVER && confirmed && unheard[e] & serving & records & 2 -> remove(2) }
#endif

#ifdef LIVENESS
	:: d_step { phase[e] == LEADS && (!SAME_SERVER || epoch != num[e] || stopped & BIT(who[e])) -> resign() }
	:: d_step { phase[e] == ELECTED && stopped & BIT(who[e]) -> resign() }
	/* It evicts what is dead by observation (A2). */
	:: d_step { LEADING && SAME_SERVER && confirmed && records & stopped -> REMEMBER(records & stopped); records = records & ~stopped }
#ifndef NO_PASSIVE
	:: d_step { LEADING && dry & BIT(who[e]) && ~NO_SOURCE & BIT(who[e]) && OTHER(who[e], NO_SOURCE) ->
		passive = passive | BIT(who[e]); NO_SOURCE = NO_SOURCE | BIT(who[e]) }
	:: d_step { LEADING && ~passive & BIT(who[e]) && !HALF && OTHER(who[e], passive) -> passive = passive | BIT(who[e]) }
#endif
	RETIRE(0)
	RETIRE(1)
	RETIRE(2)
	LOSE(0)
	LOSE(1)
	LOSE(2)
#endif
	od
}

/* ---- The table, and time. */

#ifdef NO_LEADER_LEASE
#define UNAWARE(e) false
#else
#define UNAWARE(e) (phase[e] == LEADS && elected[e] != server)
#endif
#if EPOCHS == 2
#define UNAWARES  (UNAWARE(0) || UNAWARE(1))
#elif EPOCHS == 3
#define UNAWARES  (UNAWARE(0) || UNAWARE(1) || UNAWARE(2))
#else
#define UNAWARES  (UNAWARE(0) || UNAWARE(1) || UNAWARE(2) || UNAWARE(3) || UNAWARE(4))
#endif

active proctype Table()
{
	byte i;
	do
	/* A lease later each worker and each leader has synced with this Server, or has stopped. */
	:: d_step { !confirmed && !(serving & ~synced) && !UNAWARES -> confirmed = true }

	/* Any records, any removals, any number of epochs. */
	:: atomic { server < LOSSES && MAY ->
		FAULT; server++; published = 0; synced = 0; confirmed = false;
#ifdef LIVENESS
		retired = 0;
#endif
		do
		:: i < LIVES -> i++
		:: i < LIVES && records & BIT(i) -> records = records & ~BIT(i); i++
		:: i < LIVES && removed & BIT(i) -> removed = removed & ~BIT(i); i++
		:: i < LIVES && removed & BIT(i) -> removed = removed & ~BIT(i); records = records | BIT(i); i++
		:: i == LIVES -> i = 0; break
		od;
		if
		:: true
		:: epoch = 0; SETLEADER(0)
		:: num[0] && num[0] < epoch -> epoch = num[0]; SETLEADER(1)
		:: num[1] && num[1] < epoch -> epoch = num[1]; SETLEADER(2)
		fi }

#ifdef BY_HAND
	:: d_step { !deleted && phase[0] != ELECTED && phase[1] != ELECTED && records & 1 ->
		deleted = true; records = records & ~1; published = published & ~1; synced = synced & ~1 }
	:: d_step { !deleted && phase[0] != ELECTED && phase[1] != ELECTED && records & 2 ->
		deleted = true; records = records & ~2; published = published & ~2; synced = synced & ~2 }
#endif
	od
}

#ifdef LIVENESS
/* Every step but a fault changes something for good. So each run ends, and where
 * it ends nothing is left to do. */
active proctype Check()
{
	atomic {
		if
		:: candidates = 5
		:: candidates = 6
		:: candidates = 7
		fi;
		if
		:: faults = 0
		:: faults = 1
#if FAULTS > 1
		:: faults = 2
#endif
		fi
	}
	timeout -> assert(runs && !(runs & (runs - 1)))         /* once */
}
#endif
