#!/usr/bin/env bash
# Checks each variant of the model with spin, and prints the number of states and
# the verdict. Fails if a verdict is not the expected one.
#
#   etcd/model/check.sh           every variant
#   FAULTS=3 etcd/model/check.sh  three faults, instead of two, before the task must settle
set -euo pipefail
model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/handover.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
wrong=0

# check EXPECTED WHAT SPINFLAGS GCCFLAGS PANFLAGS
check() {
	local expected=$1 what=$2 verdict states steps
	rm -f pan* ./*.trail
	# shellcheck disable=SC2086 # flags are words
	{
		spin $3 -a "$model"
		gcc -w -DMEMLIM=700 $4 -o pan pan.c
		timeout 300 ./pan $5
	} >out 2>&1 || true
	states=$(sed -nE 's/^ *([0-9.e+]+) states, stored.*/\1/p' out)
	steps=$(sed -nE 's/^pan:1: .*\(at depth ([0-9]+)\).*/, after \1 steps/p' out)
	if grep -q '^pan:1: assertion violated' out; then
		verdict='runs twice'
	elif grep -q '^pan:1: acceptance cycle' out; then
		verdict='never settles'
	elif grep -q 'errors: 0' out && ! grep -qE 'search depth too small|Search not completed|out of memory' out; then
		verdict=holds
	else
		verdict=failed
		cat out
	fi
	printf '%-62s %9s states  %s%s\n' "$what" "${states:--}" "$verdict" "$steps"
	if [ "$verdict" != "$expected" ]; then
		echo "    expected: $expected"
		wrong=1
	fi
}

safe() { check holds "$1" "$2" "-DSAFETY -O2" "-m300000 -w22"; }

# Few faults make short counterexamples. -E ignores invalid end states, because a
# leader without faults left may wait forever.
broken() { check 'runs twice' "without $1" "-D$2 -DFAULTS=$3" "-DSAFETY -O0" "-E -m300000 -w20"; }

settles() { check "$1" "$2" "-DLIVENESS -DFAULTS=$3 ${4-}" "-DNFAIR=3 -O2" "-a -f -m300000 -w20"; }

echo "never in two places:"
safe "any number of faults" ""
safe "leaders without their key in full, two faults" "-DIN_FULL -DFAULTS=2"
broken "the leader's guard" NO_LEADER_GUARD 1
broken "the term's fence" NO_TERM_FENCE 1
broken "the claim" NO_CLAIM 1
broken "the guarded delete of active" NO_GUARDED_DELETE 3
broken "self-fencing" NO_SELF_FENCING 1
broken "assigned in List" NO_ASSIGNED_LISTED 1
broken "the worker's lease on assigned" NO_ASSIGNED_LEASE 1
broken "a pause for the worker after an unknown outcome (T7)" NO_CAUTION 3
broken "treating withdrawal of an unanswered put as uncertain" NO_UNCERTAINTY 1

echo "finally running once:"
settles holds "after ${FAULTS:-2} faults" "${FAULTS:-2}"
settles 'never settles' "without withdrawing unclaimed tasks, after one fault" 1 -DNO_WITHDRAWAL

exit $wrong
