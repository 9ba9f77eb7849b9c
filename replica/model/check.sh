#!/usr/bin/env bash
# Checks each variant of the two models with spin, and prints the number of states
# and the verdict. Fails if a verdict is not the expected one.
#
#   replica/model/check.sh        every rule, a minute
#   replica/model/check.sh -full  larger searches, too: four minutes, 1.5 GB
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
wrong=0
live='-DLIVENESS -DLIVES=3 -DEPOCHS=5'

# check EXPECTED WHAT MODEL SPINFLAGS GCCFLAGS PANFLAGS
check() {
	local expected=$1 what=$2 verdict states steps
	rm -f pan* ./*.trail
	# shellcheck disable=SC2086 # flags are words
	{
		spin $4 -a "$here/$3.pml"
		gcc -w -DMEMLIM=1800 -DNOREDUCE $5 -o pan pan.c
		timeout 300 ./pan -E -m100000 $6
	} >out 2>&1 || true
	states=$(sed -nE 's/^ *([0-9.e+]+) states, stored.*/\1/p' out)
	steps=$(sed -nE 's/^pan:1: .*\(at depth ([0-9]+)\).*/, after \1 steps/p' out)
	case $(grep '^pan:1: ' out) in
	*'violated'*'(runs& ~('*) verdict='runs twice' ;;
	*'violated'*'||synced)'*) verdict='confirms too early' ;;
	*'violated'*'!((joined&&'*) verdict='evicts a live member' ;;
	*'violated'*'(runs&& !('*) verdict='stands still' ;;
	*'violated'*'(candidates&serving)'*) verdict='waits ten leases' ;;
	*'violated'*'!((runs&(1<<'*) verdict='stops a task' ;;
	*'violated'*'(e<('*) verdict='elects for ever' ;;
	*'non-progress cycle'*) verdict='never settles' ;;
	*) verdict=failed ;;
	esac
	if grep -q 'errors: 0' out && ! grep -qE 'search depth too small|Search not completed|out of memory' out; then
		verdict=holds
	fi
	[ "$verdict" != failed ] || cat out
	printf '%-66s %8s states  %s%s\n' "$what" "${states:--}" "$verdict" "$steps"
	if [ "$verdict" != "$expected" ]; then
		echo "    expected: $expected"
		wrong=1
	fi
}

# Depth first, until every state is known.
holds() { check holds "$1" "$2" "$3" "-DSAFETY -O2" -w22; }

# Breadth first, so that the run found is a shortest one.
breaks() { check "$1" "$2" "$3" "$4" "-DSAFETY -DBFS -O0" -w20; }

twice() { breaks 'runs twice' "without $1" replica "-D$2"; }
alive() { breaks 'evicts a live member' "without $1" lease "-D$2"; }
still() { breaks "${4-stands still}" "without $1" replica "$live -DFAULTS=$3 -D$2"; }

echo "never in two places:"
holds "two lives, three epochs, a loss" replica -DEPOCHS=3
holds "three lives, two epochs, a loss" replica -DLIVES=3
holds "two lives, two epochs, two losses" replica -DLOSSES=2
if [ "${1-}" = -full ]; then
	holds "three lives, three epochs" replica "-DLIVES=3 -DEPOCHS=3 -DLOSSES=0 -DNO_LATE_RECORDS"
	holds "two lives, three epochs, two losses" replica "-DEPOCHS=3 -DLOSSES=2"
fi
twice "the fence at joining (A1)" NO_JOIN_FENCE
twice "the fence in List (C7)" NO_LIST_FENCE
twice "waiting for members that have not answered (T4)" SILENT_IS_EMPTY
twice "self-fencing (W5)" NO_SELF_FENCING
twice "campaigning before reading the members (B4)" READ_FIRST
twice "campaigns that belong to one Server (B4)" ANY_SERVER
twice "leading each epoch once (A3)" LEADS_AGAIN
twice "comparing the epoch of the table (B3)" NO_COMPARISON
twice "epochs that differ from lost ones (B3)" SAME_EPOCHS
twice "Confirm before campaigns (B7)" CAMPAIGN_UNCONFIRMED
twice "another Server when a record is deleted by hand (B7)" BY_HAND
twice "stopping at another Server (A9)" STAY_AT_OTHER_SERVER
twice "a leader's own lease (A9)" NO_LEADER_LEASE
twice "retirement, by evicting live members (A10)" EVICT_UNCALLABLE
twice "a new ID for each first attempt (A1)" SAME_ID
twice "one Sync at a time, for leaders" TWO_SYNCS

echo "never evicted alive:"
holds "four heartbeats, a loss" lease ""
if [ "${1-}" = -full ]; then
	holds "five heartbeats, a loss" lease -DBEATS=5
fi
alive "rising heartbeats (B1)" NOT_RISING
alive "comparing the heartbeat (B2)" NO_COMPARISON
alive "counting the lease from the sending (W5)" FROM_ANSWER
alive "Confirm before evictions (B7)" EVICT_UNCONFIRMED
alive "retirement, by evicting live members (A10)" RETIRE_BY_EVICTION
breaks 'confirms too early' "with a longer lease that was lost with the table (A8, B7)" lease -DLONGER=1

echo "finally running once:"
holds "after two faults" replica "$live -DFAULTS=2"
check holds "after one fault, and no run without end" replica "$live -DFAULTS=1" "-DNP -O2" "-l -w20"
still "retirement (A10)" NO_RETIREMENT 1
still "retirement by a leader that no member answers" NO_RETIREMENT_ALONE 1
still "retirement of a member with a call in doubt" NO_DOUBT 1
still "passive leaders (A7)" NO_PASSIVE 1
still "an end of being passive (A7)" PASSIVE_FOR_EVER 2
still "passive replicas that campaign (A3)" PASSIVE_NEVER_STANDS 2 'waits ten leases'
still "a second campaign after leading (A3)" NO_SECOND_CAMPAIGN 1
check 'elects for ever' "without the epochs in the members' records (B3)" replica "$live -DFAULTS=2 -DNO_RECORDED_EPOCHS" "-DSAFETY -O2" -w22
still "publishing unknown IDs (B2)" REFUSE_UNKNOWN 1 'stops a task'

exit $wrong
