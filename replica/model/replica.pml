/*
 * Replicas that share one task through a table: members, evictions, epochs and
 * fences, as specified by A1 to A10 and B1 to B7, with the leader's behaviour from
 * T4 and the worker's from W4 and W5. README.md maps the names to the contract;
 * check.sh runs the model. lease.pml proves what this model takes for granted of time.
 *
 * A worker has several lives: each time it joins it has a new ID. Lives are named
 * by the order in which they join, since nothing else tells them apart. A
 * leadership is named by the order in which the campaigns arrive. Nothing else counts,
 * so runs of any length with that many lives and campaigns are checked. A Sync writes,
 * and reads later. A transaction is the case in which nothing happens between the two.
 *
 *	-DNO_JOIN_FENCE        the first Sync does not raise the worker's fence (A1)
 *	-DNO_LIST_FENCE        List does not raise it (C7)
 *	-DSILENT_IS_EMPTY      a new leader does not wait for the members that it found (T4)
 *	-DNO_SELF_FENCING      a member is evicted while its task runs (W5)
 *	-DREAD_FIRST           a candidate reads the members before it campaigns (B4)
 *	-DANY_SERVER           a leader starts with the first View that shows it leading (B4, A9)
 *	-DLEADS_AGAIN          a leader that has stopped leads the same epoch again (A3)
 *	-DSAME_EPOCHS          a campaign may have an epoch that was lost (B3)
 *	-DNO_COMPARISON        a campaign succeeds whatever the epoch of the table is (B3)
 *	-DCAMPAIGN_UNCONFIRMED campaigns do not wait for Confirm (B7)
 *	-DSTAY_AT_OTHER_SERVER a leader continues with another Server (A9)
 *	-DNO_LEADER_LEASE      a leader continues without a Sync for a lease (A9)
 *	-DEVICT_UNCALLABLE     a leader evicts a live member that it cannot call (A10)
 *	-DSAME_ID              a first Sync without an answer is repeated with the same ID (A1)
 *	-DTWO_SYNCS            a leader may process a View after a later one (B1)
 *	-DBY_HAND              records are deleted by hand, and the Server stays (B7)
 *	-DNO_LATE_RECORDS      no late Sync brings back the record of a life that has stopped
 *
 *	-DLIVES=n -DEPOCHS=n   2 or 3, and 2, 3 or 5; 2 each if not given
 *	-DLOSSES=n             how often the table loses data: once if not given
 *
 *	-DLIVENESS             only mandatory steps, and faults, of which -DFAULTS=n may happen
 *	-DNO_RETIREMENT        uncallable members are not retired (A10)
 *	-DNO_DOUBT             only a member that the leader never heard is retired
 *	-DNO_RETIREMENT_ALONE  nor by a leader that no other member answers
 *	-DNO_PASSIVE           no leader becomes passive (A7)
 *	-DPASSIVE_FOR_EVER     a replica that became passive remains so
 *	-DPASSIVE_NEVER_STANDS a passive replica never campaigns
 *	-DNO_SECOND_CAMPAIGN   a replica that stopped leading does not campaign again (A3)
 *	-DNO_RECORDED_EPOCHS   a campaign ignores the epochs in the members' records (B3)
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
byte records;                   /* the members */
byte server;
bool confirmed = true;
byte published, synced;         /* since the last loss: its Sync was written; was answered */

/* ---- The workers, by life. */

byte joining;                   /* the first Sync is under way */
byte serving;                   /* takes calls */
byte stopped;                   /* everything has stopped, for ever */
byte runs;                      /* the task's function runs */
byte fence[LIVES];

/* ---- The leaders, by leadership. */

#define NONE      0
#define ELECTED   1             /* its campaign succeeded, and it has not read the members; with READ_FIRST: the reverse */
#define LEADS     2
#define DONE      3
byte phase[EPOCHS], num[EPOCHS], base[EPOCHS];  /* num: its epoch; base: that of the View before */
byte elected[EPOCHS];           /* the Server of the View on which the process campaigned last */
byte unheard[EPOCHS];           /* members of its first View that have not answered: may run the task (T4) */
byte late[EPOCHS];              /* members since then that have not answered */
byte free[EPOCHS], has[EPOCHS]; /* the others, by what the leader assumes */
byte air[EPOCHS];               /* Adds in flight */
byte k;                         /* counts; otherwise 0 */
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
#ifdef STAY_AT_OTHER_SERVER
#define SAME_SERVER true
#else
#define SAME_SERVER (elected[e] == server)
#endif
#ifdef REFUSE_UNKNOWN
#define REFUSED(i) (~records & BIT(i))
#else
#define REFUSED(i) false
#endif
#ifdef CAMPAIGN_UNCONFIRMED
#define OPEN      true
#else
#define OPEN      confirmed
#endif
#if defined LIVENESS
#define MAY_LEAD  (elected[e] == server && leader == e+1)
#elif defined ANY_SERVER
#define MAY_LEAD  (elected[e] == server || epoch == num[e])
#else
#define MAY_LEAD  (elected[e] == server)
#endif
#ifdef NO_COMPARISON
#define SAME_EPOCH true
#define ABOVE(n)  true
#else
#define SAME_EPOCH (epoch == base[e])
#define ABOVE(n)  (epoch < (n))
#endif

/* ---- What only liveness needs. */

#ifdef LIVENESS
byte candidates;                /* may lead */
byte passive;                   /* could not lead: few members answer, or no Source (A7) */
byte retired;                   /* their Syncs fail (A10) */
byte deaf, dry;                 /* faults: only the process itself can call it; its Source never answers */
byte leader;                    /* View.Leader: the leadership plus one, or NOT_LED(life) */
byte who[EPOCHS];               /* the life whose process leads */
byte top;                       /* the highest epoch ever */

#define JOINED    (joining | serving)
#define COMES     (!((JOINED | stopped) & 4))           /* the third life, a candidate */
#define READY     candidates
#define SPARE(i)  (candidates & JOINED & ~retired & ~BIT(i) || i != 2 && COMES)
#define SETLEADER(l) leader = l
#define LEADING   (phase[e] == LEADS && !(stopped & BIT(who[e])))
#define CALLED(i) (BIT(i) & (~deaf | BIT(who[e])))
#define DOUBTED   (has[e] & ~air[e] & ~runs)            /* an Add or a Remove that had no answer */
#define SOURCE    (!(dry & BIT(who[e])))
#define RETREAT   passive = passive | (stopped & retired -> 1 << i : 0)     /* after retirement */
#define LOSSLESS(i) assert(!(runs & BIT(i)))            /* a loss stops no task */
#else
#define READY     true
#define SPARE(i)  true
#define SETLEADER(l) skip
#define LEADING   (phase[e] == LEADS)
#define CALLED(i) BIT(i)
#define DOUBTED   has[e]
#define SOURCE    true
#define RETREAT   skip
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

/* Calls in flight to it are refused. */
inline stop(i) {
	joining = joining & ~BIT(i); serving = serving & ~BIT(i); stopped = stopped | BIT(i);
	published = published & ~BIT(i); synced = synced & ~BIT(i);
	runs = runs & ~BIT(i); fence[i] = 0;
	do
	:: k < EPOCHS -> air[k] = air[k] & ~BIT(i); k++
	:: else -> break
	od;
	k = 0
}

#ifdef LIVENESS
/* Its first Sync had no answer: it joins with another ID. No leader has called the former one. */
inline restart(i) {
	joining = joining & ~BIT(i); records = records & ~BIT(i);
	do
	:: k < EPOCHS -> unheard[k] = unheard[k] & ~BIT(i); late[k] = late[k] & ~BIT(i); k++
	:: else -> break
	od;
	k = 0
}
#endif

active [LIVES] proctype Life()
{
	byte i = _pid;
	do
	/* The first Sync. All its steps see one Server. */
	:: d_step { JOINS(i) -> publish(i); joining = joining | BIT(i); RETREAT }
	:: d_step { joining & BIT(i) ->
		if
		:: published & BIT(i) ->
			joining = joining & ~BIT(i); serving = serving | BIT(i);
			synced = synced | BIT(i); JOIN_FENCE(i)
#ifdef SAME_ID
		:: else -> publish(i)
#elif defined LIVENESS
		:: else -> restart(i)
#else
		:: else -> stop(i)
#endif
		fi }

	/* A Sync after the table has lost something. The others change nothing. */
	:: d_step { serving & ~published & BIT(i) ->
		if
		:: REFUSED(i) -> LOSSLESS(i); stop(i)
		:: else -> publish(i)
		fi }
	:: d_step { serving & published & ~synced & BIT(i) -> synced = synced | BIT(i); raise(i, epoch) }

	/* It crashes, its lease ends, or it drains. */
	:: d_step { (joining | serving) & BIT(i) && MAY && SPARE(i) -> FAULT; stop(i) }

#ifndef NO_LATE_RECORDS
	/* A Sync of a life that has stopped arrives late. */
	:: d_step { stopped & ~records & BIT(i) && MAY -> FAULT; records = records | BIT(i) }
#endif

#ifdef LIVENESS
	:: d_step { serving & retired & BIT(i) -> stop(i) }
	:: d_step { JOINED & ~deaf & BIT(i) && MAY -> FAULT; deaf = deaf | BIT(i) }
	:: d_step { JOINED & ~deaf & BIT(i) && i == 2 && stopped & deaf -> deaf = deaf | BIT(i) }      /* like its last life */
	:: d_step { serving & candidates & BIT(i) && !dry && MAY && (candidates & JOINED & ~retired & ~BIT(i) || stopped && i != 2 && COMES) -> FAULT; dry = BIT(i) }
#else
	/* It leaves, or is evicted. Leaving does not wait for Confirm, so this is both. */
	:: d_step { stopped & records & BIT(i) -> records = records & ~BIT(i) }
	/* It is evicted, since its first Sync had no answer for a lease. */
	:: d_step { joining & published & BIT(i) && confirmed -> records = records & ~BIT(i); published = published & ~BIT(i) }
#ifdef NO_SELF_FENCING
	:: d_step { serving & records & BIT(i) && confirmed -> records = records & ~BIT(i) }
#endif
#endif
	od
}

/* ---- A leadership. */

#define NEXT      (phase[e] == NONE && (e == 0 || phase[e-1] != NONE))

/* A campaign arrives and succeeds. Its process chose the epoch, and may have stopped. */
inline claim(to) {
	base[e] = epoch; num[e] = to; epoch = to; SETLEADER(e+1)
}

inline out(m) {
	unheard[e] = unheard[e] & ~(m); late[e] = late[e] & ~(m);
	free[e] = free[e] & ~(m); has[e] = has[e] & ~(m)
}

inline resign() { out(255); elected[e] = 0; phase[e] = DONE }

inline is_free(i) { out(BIT(i)); free[e] = free[e] | BIT(i) }

inline is_there(i) { out(BIT(i)); has[e] = has[e] | BIT(i) }

/* A call also fences the earlier terms of its leader. One that leads an epoch twice
 * counts its terms from 1 again. */
#ifdef LEADS_AGAIN
#define OWN_FENCE(i) skip
#else
#define OWN_FENCE(i) air[e] = air[e] & ~BIT(i)
#endif

/* A call and its answer are one step, but for Add, and a Remove without answer. ErrDeposed ends the leadership. */
inline list(i) {
	if
	:: fence[i] > num[e] -> resign()
	:: else ->
		LIST_FENCE(i);
		OWN_FENCE(i);
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
	:: fence[i] > num[e] && phase[e] == LEADS -> resign()
	:: fence[i] > num[e] && phase[e] != LEADS
	:: else ->
		raise(i, num[e]);
		assert(!(runs & ~BIT(i)));      /* never twice */
		runs = runs | BIT(i)
	fi
}

inline removes(i) {
	if
	:: fence[i] > num[e] -> resign()
	:: fence[i] <= num[e] -> raise(i, num[e]); runs = runs & ~BIT(i); is_free(i)
	:: fence[i] <= num[e] -> raise(i, num[e]); runs = runs & ~BIT(i)
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
#ifdef PASSIVE_NEVER_STANDS
#define STANDS(c) (~passive & BIT(c))
#else
#define STANDS(c) (~passive & BIT(c) || !OTHER(c, passive))
#endif
#define NOT_LED(c) (EPOCHS + 1 + (c))   /* its campaign arrived so late that it leads no more */
#define LED       (leader > EPOCHS -> leader - NOT_LED(0) : who[leader-1])
#ifdef NO_SECOND_CAMPAIGN
#define STOPPED_LEADING(c) false
#else
#define STOPPED_LEADING(c) (LED == c && (leader > EPOCHS || phase[leader-1] == DONE))
#endif
#define WORSE(c)  (passive & BIT(LED) && ~passive & BIT(c))
#define VACANT(c) (leader == 0 || (stopped | ~records) & BIT(LED) || WORSE(c) || STOPPED_LEADING(c))
#define STANDS_NOW(c) (NEXT && OPEN && candidates & serving & synced & BIT(c) && STANDS(c) && VACANT(c))

#define FRESH(n)  (n > 0 && num[0] != n && num[1] != n && num[2] != n && num[3] != n)

inline win(c, to) {
	claim(to); who[e] = c; elected[e] = server; phase[e] = ELECTED;
	if
	:: to > top -> top = to
	:: else
	fi;
	assert(e < EPOCHS - 1)          /* elections end */
}

/* An epoch above the table's and those in the records, and unlike any other. One that was
 * lost may be higher. A record that lags behind is a fault. */
#ifdef NO_RECORDED_EPOCHS
#define SEEN(n)   false
#else
#define SEEN(n)   (fence[0] > n || fence[1] > n || fence[2] > n)
#endif
#define LOWER(c, n) (FRESH(n) && epoch < n && fence[c] < n)
#define CAMPAIGN(c) \
	:: d_step { STANDS_NOW(c) -> win(c, top/2*2 + 2) } \
	:: d_step { STANDS_NOW(c) && LOWER(c, top-1) && !SEEN(top-1) -> win(c, top-1) } \
	:: d_step { STANDS_NOW(c) && LOWER(c, top-3) && !SEEN(top-3) -> win(c, top-3) } \
	:: d_step { STANDS_NOW(c) && LOWER(c, top-1) && SEEN(top-1) && MAY -> FAULT; win(c, top-1) } \
	:: d_step { NEXT && OPEN && candidates & (JOINED | stopped) & BIT(c) && MAY -> FAULT; top = top/2*2 + 2; epoch = top; SETLEADER(NOT_LED(c)) }

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
	:: d_step { LEADING && SAME_SERVER && SOURCE && BLOCKS & serving & records & ~retired & BIT(i) & ~CALLED(i) && (HALF || ALONE) -> retired = retired | BIT(i) }
#endif
#define LOSE(i) \
	:: d_step { air[e] & BIT(i) & ~CALLED(i) -> air[e] = air[e] & ~BIT(i) } \
	:: d_step { air[e] & BIT(i) && MAY -> FAULT; air[e] = air[e] & ~BIT(i) }

#endif

#define WINS(n, to) \
	:: d_step { e == n && NEXT && OPEN && ABOVE(to) -> claim(to); elected[e] = server; phase[e] = ELECTED }

active [EPOCHS] proctype Leader()
{
	byte e = _pid - LIVES;
	do
#ifdef LIVENESS
	CAMPAIGN(0)
	CAMPAIGN(1)
	CAMPAIGN(2)
#elif defined READ_FIRST
	:: d_step { NEXT && OPEN -> elected[e] = server; unheard[e] = records; phase[e] = ELECTED }
	:: d_step { phase[e] == ELECTED && OPEN && elected[e] == server && ABOVE(8 + e) -> claim(8 + e); phase[e] = LEADS }
#else
	/* The epochs of three campaigns in any order, each above that of its View. */
	WINS(0, 4)
	WINS(1, 2)
	WINS(1, 6)
#if EPOCHS > 2
	WINS(2, num[1]-1)
	WINS(2, num[1]+1)
	WINS(2, (num[1] == 2 -> 5 : 3))
#endif
#ifdef SAME_EPOCHS
	WINS(1, num[0])
#endif
#endif

	/* A campaign arrives again. */
	:: d_step { num[e] && OPEN && epoch != num[e] && SAME_EPOCH && MAY -> FAULT; epoch = num[e]; SETLEADER(e+1) }

	/* Its process has campaigned once more, without success, when a View shows the epoch. */
	:: d_step { phase[e] == ELECTED && OPEN && epoch == num[e] && elected[e] != server && MAY -> FAULT; elected[e] = server }
#ifdef LEADS_AGAIN
	:: d_step { phase[e] == DONE && OPEN && epoch == num[e] -> elected[e] = server; phase[e] = ELECTED }
#endif

	/* The first View: of the same Sync, or of a later one if that had no answer. */
#ifndef READ_FIRST
	:: d_step { phase[e] == ELECTED && MAY_LEAD -> elected[e] = server; unheard[e] = records; phase[e] = LEADS }
#endif

	/* A later View. It does not tell the leader of another leader: only ErrDeposed does. */
	:: d_step { LEADING && SAME_SERVER && records != KNOWN ->
		late[e] = late[e] | (records & ~KNOWN); out(~records) }

#ifdef TWO_SYNCS
	:: d_step { LEADING && SAME_SERVER && !reads[e] -> reads[e] = true; found[e] = records }
	:: d_step { LEADING && reads[e] ->
		out(~found[e]);
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
	:: d_step { LEADING && SAME_SERVER && confirmed && unheard[e] & serving & records & 1 -> records = records & ~1 }
	:: d_step { LEADING && SAME_SERVER && confirmed && unheard[e] & serving & records & 2 -> records = records & ~2 }
#endif

#ifdef LIVENESS
	:: d_step { phase[e] == LEADS && (!SAME_SERVER || epoch != num[e] || stopped & BIT(who[e])) -> resign() }
	:: d_step { phase[e] == ELECTED && (!MAY_LEAD || stopped & BIT(who[e])) -> resign() }
	/* It evicts what is dead by observation (A2). */
	:: d_step { LEADING && SAME_SERVER && confirmed && records & stopped -> records = records & ~stopped }
#ifndef NO_PASSIVE
	:: d_step { LEADING && ~passive & BIT(who[e]) && (dry & BIT(who[e]) || !HALF) && OTHER(who[e], passive) -> passive = passive | BIT(who[e]) }
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

	/* Any records, any number of epochs. */
	:: atomic { server < LOSSES && MAY ->
		FAULT; server++; published = 0; synced = 0; confirmed = false;
#ifdef LIVENESS
		retired = 0;
#endif
		do
		:: i < LIVES -> i++
		:: i < LIVES && records & BIT(i) -> records = records & ~BIT(i); i++
		:: i < LIVES && stopped & ~records & BIT(i) -> records = records | BIT(i); i++  /* a removal is lost */
		:: i == LIVES -> i = 0; break
		od;
		if
		:: true
		:: epoch = 0; SETLEADER(0)
		:: num[0] && num[0] < epoch -> epoch = num[0]; SETLEADER(1)
		:: num[1] && num[1] < epoch -> epoch = num[1]; SETLEADER(2)
		fi }

#ifdef BY_HAND
	:: d_step { records & 1 -> records = records & ~1 }
	:: d_step { records & 2 -> records = records & ~2 }
#endif
	od
}

#ifdef LIVENESS
/* Every step but a fault changes something for good. So each run ends, and where it ends
 * nothing is left to do. If the task does not run then, ten leases pass: replicas that are
 * passive are candidates again. */
active proctype Check()
{
	byte i;
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
#ifndef PASSIVE_FOR_EVER
	do
	:: atomic { timeout ->
		if
		:: runs == 0 && passive && i < 3 -> i++;
			assert(candidates & serving & ~passive);        /* one leads meanwhile */
			if
			:: passive & 1 -> passive = passive & ~1
			:: passive & 2 -> passive = passive & ~2
			:: passive & 4 -> passive = passive & ~4
			fi
		:: else -> break
		fi }
	od;
#else
	timeout;
#endif
	assert(runs && !(runs & (runs - 1)))    /* once */
}
#endif
