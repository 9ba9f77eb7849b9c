/*
 * One member, its record, and one observer: the rules of time. replica.pml takes
 * their results for granted: a member that is evicted has stopped (assertion 1),
 * and when a table is confirmed, every member that runs has synced with it
 * (assertion 2). README.md maps the names to the contract; check.sh runs the model.
 *
 * Time passes in ticks. A member whose lease ends stops within the tick, before
 * the observer acts: that is the tenth by which the member's lease is shorter. Ages
 * stop counting at the lease, so time has no bound; heartbeats have. Every Sync
 * ever sent may arrive at any time, and any number of times.
 *
 *	-DNOT_RISING           a Sync is published though its heartbeat is not higher (B1)
 *	-DNO_COMPARISON        an eviction does not compare the heartbeat (B2)
 *	-DFROM_ANSWER          the member counts its lease from the answer (W5)
 *	-DRETIRE_BY_EVICTION   a live member is evicted, not retired (A10)
 *	-DEVICT_UNCONFIRMED    evictions do not wait for Confirm (B7)
 *	-DUNTIL_RETURN         the observer counts until its Sync returned, not until it began
 *	-DNO_SECOND_LOOK       the observer counts until it sends the eviction
 *	-DMANY_SYNCS           a member has any number of Syncs under way
 *	-DSAME_ID              a member whose first Sync had no answer tries again with the same ID (A1)
 *	-DNO_MEMORY            removals are not remembered (B2)
 *	-DLONGER=n             the member's lease is n ticks longer than the observer's
 *	-DBEATS=n              heartbeats: 4 if not given
 */

#ifndef BEATS
#define BEATS 4
#endif
#ifndef LONGER
#define LONGER 0
#endif
#define LEASE     3             /* of the observer, in ticks */
#define OTHER     (LEASE + LONGER)

/* ---- The table. */

byte record;                    /* the heartbeat; 0: no record */
bool removed, retired;
bool lost;                      /* another Server, once */
bool confirmed = true;
bool shorter;                   /* the table has lost the member's lease with its record */

/* ---- The member. */

byte sent;                      /* heartbeats */
byte age[BEATS+1];              /* since each was sent */
byte left;                      /* ticks until the lease ends */
bool joined, stopped;
bool synced = true;             /* with the present Server */
bool waits;                     /* for an answer */
#define RUNS      (joined && !stopped)

/* ---- The observer. */

byte saw, since;                /* a heartbeat, and its age here */
bool begun, read;               /* its Sync */
byte start, found;              /* the age when that Sync began; the heartbeat that it read */
byte dead;                      /* evict if the heartbeat is this one */
bool sees, moved;               /* what the Sync has read: another Server; so did one that returned */
byte lasted;                    /* the age of that */

/* ---- The rules. */

#ifdef NOT_RISING
#define RISES(h)  true
#else
#define RISES(h)  (h > record)
#endif
#ifdef NO_COMPARISON
#define SAME      true
#else
#define SAME      (record == dead)
#endif
#ifdef EVICT_UNCONFIRMED
#define MAY_EVICT true
#else
#define MAY_EVICT confirmed
#endif
#ifdef FROM_ANSWER
#define LASTS(h)  OTHER
#else
#define LASTS(h)  (OTHER - age[h])
#endif
#ifdef UNTIL_RETURN
#define COUNTED   since
#else
#define COUNTED   start
#endif
#ifdef MANY_SYNCS
#define MAY_SEND  true
#define ASKED(h)  true
#else
#define MAY_SEND  !waits
#define ASKED(h)  (waits && h == sent)
#endif
#ifdef SAME_ID
#define KEEPS_ID  true
#else
#define KEEPS_ID  (joined || sent == 0)
#endif
#ifdef NO_MEMORY
#define REFUSED   retired
#else
#define REFUSED   (retired || removed)
#endif

inline older(a) {
	if
	:: a < OTHER -> a++
	:: else
	fi
}

inline quit() { stopped = true; left = 0; waits = false }

active proctype Time()
{
	do
	:: d_step {
		older(age[1]); older(age[2]); older(age[3]); older(age[4]);
#if BEATS > 4
		older(age[5]);
#endif
		if
		:: saw -> older(since)
		:: else
		fi;
		if
		:: moved -> older(lasted)
		:: else
		fi;
		if
		:: left > 0 -> left--;
			if
			:: left == 0 -> quit()
			:: else
			fi
		:: else
		fi }
	od
}

/* A Sync arrives: h is its heartbeat. */
inline arrive(h) {
	if
	:: REFUSED
	:: !REFUSED && (record == 0 || RISES(h)) -> record = h
	:: !REFUSED && !(record == 0 || RISES(h))
	fi
}

inline answer(h) {
	if
	:: REFUSED -> quit()
	:: !REFUSED && LASTS(h) > left -> left = LASTS(h); joined = true; synced = true
	:: !REFUSED && LASTS(h) <= left -> synced = true
	fi;
	if
	:: h == sent -> waits = false
	:: else
	fi
}

active proctype Member()
{
	byte h;
	do
	:: d_step { sent < BEATS && !stopped && MAY_SEND && KEEPS_ID ->
#ifndef MANY_SYNCS
		age[sent] = OTHER;
#endif
		sent++; age[sent] = 0; waits = true }
	:: d_step { waits -> waits = false }
	:: d_step { !stopped -> quit() }

	:: atomic { sent > 0 -> h = 1;
		do
		:: h < sent -> h++
		:: break
		od;
		arrive(h);
		if
		:: true
		:: !stopped && ASKED(h) -> answer(h)
		fi;
		h = 0 }
	od
}

active proctype Observer()
{
	byte h;
	do
	:: d_step { !begun -> begun = true; start = since }
	:: d_step { begun && !read -> read = true; found = record; sees = lost }
	:: d_step { read ->
		begun = false; read = false;
		if
		:: found == 0 -> saw = 0; since = 0
		:: found && found != saw -> saw = found; since = 0
		:: found && found == saw && COUNTED >= OTHER -> dead = saw
		:: else
		fi;
		if
		:: sees && !moved -> moved = true; lasted = 0
		:: else
		fi;
		found = 0; start = 0; sees = false }
#ifdef NO_SECOND_LOOK
	:: d_step { saw && since >= OTHER && dead != saw -> dead = saw }
#endif

	:: d_step { dead && record && SAME && MAY_EVICT ->
		assert(!RUNS);          /* 1 */
		record = 0; removed = true; dead = 0 }

#ifdef RETIRE_BY_EVICTION
	:: d_step { record && MAY_EVICT -> assert(!RUNS); record = 0; removed = true }
#else
	:: d_step { record && !retired -> retired = true }
#endif

	:: d_step { !confirmed && moved && lasted >= (shorter && record == 0 -> LEASE : OTHER) ->
		assert(!RUNS || synced);        /* 2 */
		confirmed = true }

	/* The table loses what it acknowledged last, or everything. */
	:: atomic { !lost -> lost = true; confirmed = false; synced = false; retired = false;
		if
		:: removed -> removed = false; h = sent
		:: h = record
		fi;
		do
		:: h > 0 -> h--
		:: break
		od;
		record = h; h = 0; shorter = true }
	od
}
