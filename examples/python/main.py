#!/usr/bin/env python3
"""A worker whose tasks wait. See README.md for how to run it."""

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time

from worker import Worker


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manager", required=True, help="host:port of the manager")
    parser.add_argument("--name", required=True)
    parser.add_argument("--listen", required=True, help="host:port to serve at")
    parser.add_argument("--advertise", help="host:port at which the manager calls, if different")
    parser.add_argument("--lease", type=float, default=10, help="seconds")
    parser.add_argument("--stop", type=float, default=1, help="seconds that tasks have to stop")
    parser.add_argument("--journal", default="/dev/stdout", help="file to which each start and end is written")
    parser.add_argument("--lifeline", action="store_true", help="end when standard input ends")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    journal = os.open(args.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(kind, name, version):
        event = {"at": time.clock_gettime_ns(time.CLOCK_BOOTTIME), "node": args.name, "pid": os.getpid(),
                 "kind": kind, "task": name.decode(), "token": version}
        os.write(journal, (json.dumps(event) + "\n").encode())

    def work(name, content, version, end):
        """Waits for the time in the content, such as 1.5s, or until it must stop."""
        write("start", name, version)
        try:
            stopped = end.wait(None if content.startswith(b"forever") else float(content[:-1]))
            if not stopped:
                write("did", name, version)
            return not stopped
        finally:
            write("stop", name, version)

    def lifeline():
        sys.stdin.read()
        os._exit(4)

    if args.lifeline:
        threading.Thread(target=lifeline, daemon=True).start()
    worker = Worker(args.manager, args.name, args.advertise or args.listen, args.lease, args.stop,
                    work, is_job=lambda content: not content.startswith(b"forever"))
    signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "draining", True))
    worker.run(args.listen)


if __name__ == "__main__":
    main()
