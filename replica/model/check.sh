#!/usr/bin/env bash
# Checks each variant of the two models with spin, and prints the number of states
# and the verdict. Fails if a verdict is not the expected one.
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
		gcc -w -DMEMLIM=900 -DNOREDUCE $5 -o pan pan.c
		timeout 300 ./pan -E -m100000 $6
	} >out 2>&1 || true
	states=$(sed -nE 's/^ *([0-9.e+]+) states, stored.*/\1/p' out)
	steps=$(sed -nE 's/^pan:1: .*\(at depth ([0-9]+)\).*/, after \1 steps/p' out)
	case $(grep '^pan:1: ' out) in
	*'violated'*'(runs& ~('*) verdict='runs twice' ;;
	*'violated'*'||synced)'*) verdict='confirms too early' ;;
	*'violated'*'!((joined&&'*) verdict='evicts a live member' ;;
	*'violated'*'(runs&& !('*) verdict='stands still' ;;
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

twice() { breaks 'runs twice' "without $1" replica "-DTWO_STEPS -D$2"; }
alive() { breaks 'evicts a live member' "without $1" lease "-D$2"; }
still() { breaks "${4-stands still}" "without $1" replica "$live -DFAULTS=$3 -D$2"; }

echo "never in two places:"
holds "two lives, three epochs, a loss" replica "-DTWO_STEPS -DEPOCHS=3"
holds "three lives, two epochs, a loss" replica "-DTWO_STEPS -DLIVES=3"
holds "three lives, three epochs" replica "-DTWO_STEPS -DLIVES=3 -DEPOCHS=3 -DLOSSES=0"
holds "two lives, two epochs, two losses" replica "-DTWO_STEPS -DLOSSES=2"
holds "two lives, two epochs, a loss, one-step Syncs" replica ""
twice "the fence at joining (A1)" NO_JOIN_FENCE
twice "the fence in List (C7)" NO_LIST_FENCE
twice "waiting for members that have not answered (T4)" SILENT_IS_EMPTY
twice "self-fencing (W5)" NO_SELF_FENCING
twice "campaigning before reading the members (B4)" READ_FIRST
twice "campaigns that belong to one Server (B4)" ANY_SERVER
twice "epochs that differ from lost ones (B3)" SAME_EPOCHS
twice "Confirm before campaigns (B7)" CAMPAIGN_UNCONFIRMED
twice "stopping at another Server (A9)" STAY_AT_OTHER_SERVER
twice "a leader's own lease (A9)" NO_LEADER_LEASE
twice "retirement, by evicting live members (A10)" EVICT_UNCALLABLE
twice "a new ID for each first attempt (A1)" SAME_ID

echo "never evicted alive:"
holds "four heartbeats, a loss" lease ""
alive "rising heartbeats (B1)" NOT_RISING
alive "comparing the heartbeat (B2)" NO_COMPARISON
alive "counting the lease from the sending (W5)" FROM_ANSWER
alive "Confirm before evictions (B7)" EVICT_UNCONFIRMED
alive "retirement, by evicting live members (A10)" RETIRE_BY_EVICTION
breaks 'confirms too early' "with a longer lease that was lost with the table (A8, B7)" lease -DLONGER=1

echo "finally running once:"
holds "after two faults" replica "$live -DFAULTS=2 -DTWO_STEPS"
holds "after two faults, one-step Syncs" replica "$live -DFAULTS=2"
check holds "after one fault, and no run without end" replica "$live -DFAULTS=1 -DTWO_STEPS" "-DNP -O2" "-l -w20"
still "retirement (A10)" NO_RETIREMENT 1
still "retirement by a leader that no member answers" NO_RETIREMENT_ALONE 1
still "retirement of a member with an Add in doubt" NO_DOUBT 1
still "passive leaders (A7)" NO_PASSIVE 1
still "passive replicas that campaign" PASSIVE_NEVER_STANDS 2
still "yielding to a leader that has a Source" ONE_GRADE 2
still "a second campaign after leading (A3)" NO_SECOND_CAMPAIGN 1
still "publishing unknown IDs (B2)" REFUSE_UNKNOWN 1 'stops a task'

echo "rules that can be removed:"
holds "without hold, memory (B6, B2), Confirm before evictions (B7)" replica "-DTWO_STEPS -DEPOCHS=3 -DNO_HOLD -DNO_MEMORY -DEVICT_UNCONFIRMED"
holds "with hold, a record deleted by hand" replica "-DTWO_STEPS -DBY_HAND"
twice "hold, a record deleted by hand (B6)" "BY_HAND -DNO_HOLD"
holds "with hold, two Syncs at a time" replica "-DTWO_STEPS -DTWO_SYNCS"
twice "hold, two Syncs at a time (B1)" "TWO_SYNCS -DNO_HOLD"
holds "without the second look, one Sync at a time, memory" lease "-DNO_SECOND_LOOK -DMANY_SYNCS -DNO_MEMORY"
holds "without campaigns for higher epochs (A3), hold and memory" replica "$live -DFAULTS=2 -DTWO_STEPS -DNO_HIGHER_EPOCH -DNO_HOLD -DNO_MEMORY"

exit $wrong
