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
bool retired;
bool lost;                      /* another Server, once */
bool confirmed = true;
bool shorter;                   /* the table has lost the member's lease with its record */

/* ---- The member. */

byte sent;                      /* heartbeats */
byte age[BEATS+1];              /* since each was sent */
byte left;                      /* ticks until the lease ends */
bool joined, stopped;
bool synced = true;             /* with the present Server */
#define RUNS      (joined && !stopped)

/* ---- The observer. */

byte saw, since;                /* a heartbeat, and its age here */
bool read;                      /* its Sync has read the table, and will return */
byte found;                     /* the heartbeat that it read */
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
inline remove() { record = 0; retired = false }

inline older(a) {
	if
	:: a < OTHER -> a++
	:: else
	fi
}

inline quit() { stopped = true; left = 0 }

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
	:: retired
	:: !retired && (record == 0 || RISES(h)) -> record = h
	:: !retired && !(record == 0 || RISES(h))
	fi
}

inline answer(h) {
	if
	:: retired -> quit()
	:: !retired && LASTS(h) > left -> left = LASTS(h); joined = true; synced = true
	:: !retired && LASTS(h) <= left -> synced = true
	fi
}

active proctype Member()
{
	byte h;
	do
	:: d_step { sent < BEATS && !stopped && (joined || sent == 0) -> sent++; age[sent] = 0 }
	:: d_step { !stopped -> quit() }

	:: atomic { sent > 0 -> h = 1;
		do
		:: h < sent -> h++
		:: break
		od;
		arrive(h);
		if
		:: true
		:: !stopped -> answer(h)
		fi;
		h = 0 }
	od
}

active proctype Observer()
{
	byte h;
	do
	:: d_step { !read -> read = true; found = record; sees = lost }
	:: d_step { read -> read = false;
		if
		:: found == saw
		:: else -> saw = found; since = 0
		fi;
		if
		:: sees && !moved -> moved = true; lasted = 0
		:: else
		fi;
		found = 0; sees = false }

	/* Dead by observation. The eviction may arrive later, or repeatedly. */
	:: d_step { saw && since >= OTHER && dead != saw -> dead = saw }
	:: d_step { dead && record && SAME && MAY_EVICT ->
		assert(!RUNS);          /* 1 */
		remove() }

#ifdef RETIRE_BY_EVICTION
	:: d_step { record && MAY_EVICT -> assert(!RUNS); remove() }
#else
	:: d_step { record && !retired -> retired = true }
#endif

	:: d_step { !confirmed && moved && lasted >= (shorter && record == 0 -> LEASE : OTHER) ->
		assert(!RUNS || synced);        /* 2 */
		confirmed = true }

	/* The table loses what it acknowledged last, or everything. */
	:: atomic { !lost -> lost = true; confirmed = false; synced = false; retired = false;
		if
		:: h = record
		:: record == 0 -> h = sent      /* the removal is lost */
		fi;
		do
		:: h > 0 -> h--
		:: break
		od;
		record = h; h = 0; shorter = true }
	od
}
