"""A worker in Python, written from communicator/grpc/proto alone. main.py runs one."""

import logging
import os
import secrets
import sys
import threading
import time
from concurrent import futures

import grpc
from orchestrator.v1 import manager_pb2, manager_pb2_grpc, worker_pb2, worker_pb2_grpc

RUNNING = (worker_pb2.STATE_STARTING, worker_pb2.STATE_RUNNING)
KEEPALIVE = [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 3_000),
             ("grpc.keepalive_permit_without_calls", 1)]
SERVER = [*KEEPALIVE, ("grpc.http2.min_ping_interval_without_data_ms", 5_000), ("grpc.so_reuseport", 0)]
CLIENT = [*KEEPALIVE, ("grpc.http2.max_pings_without_data", 0), ("grpc.enable_http_proxy", 0),
          ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 1_000),
          ("grpc.max_reconnect_backoff_ms", 1_000)]
log = logging.getLogger("worker")


def now():
    """Returns the seconds of a clock that includes the time in which the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Task:
    """A task of the worker. The worker's lock guards it."""

    def __init__(self, change):
        self.name = change.task
        self.newest = change  # with the content, its version and receipt
        self.state = worker_pb2.STATE_STARTING
        self.end = threading.Event()  # set: the present run must end
        self.pinned = False  # according to the last report


class Worker(worker_pb2_grpc.WorkerServicer):
    """Runs work(name, content, version, end) for each task, in a thread. The function must return soon
    after end is set. It returns True if the task has completed. A task for whose content is_job returns True is not
    moved while it runs."""

    def __init__(self, manager, name, address, lease, stop, work, is_job):
        self.name, self.address, self.lease, self.stop = name.encode(), address, lease, stop
        self.work, self.is_job = work, is_job
        self.manager = manager_pb2_grpc.ManagerStub(grpc.insecure_channel(manager, CLIENT))
        self.draining = False  # set by a signal: leave once every task has moved
        self.changed = threading.Condition()  # its lock guards the attributes below
        self.counter = 1  # of the report
        self.incarnation = secrets.randbits(63) | 1
        self.fence = (0, 0)  # the highest term seen
        self.tasks = {}  # by name, in the order of the adds
        self.owed = {}  # unanswered completions, by task
        self.sent = None  # when the last acknowledged request was sent; None: no lease
        self.lost = self.alone = False  # lost: all tasks must stop; alone: no other worker can take them

    def Report(self, request, context):
        with self.changed:
            self.admit(request, context)
            version = worker_pb2.Version(incarnation=self.incarnation, counter=self.counter)
            response = worker_pb2.ReportResponse(version=version, term=self.later(request))
            for task in self.tasks.values():
                task.pinned = task.state in RUNNING and self.is_job(task.newest.content)
                if request.known != version:
                    response.tasks.add(name=task.name, state=task.state, pinned=task.pinned,
                                       content_version=task.newest.content_version, receipt=task.newest.receipt)
            return response

    def Apply(self, request, context):
        left = min(context.time_remaining() or 60, 60)
        until = now() + left - min(left / 10, 0.1)
        with self.changed:
            self.admit(request, context)
            results = [self.change(request, change) for change in request.changes]
            for i, task in enumerate(results):
                if isinstance(task, Task):  # it is stopping
                    while self.tasks.get(task.name) is task and now() < until:
                        self.changed.wait(until - now())
                    if self.tasks.get(task.name) is task:
                        results[i] = result("STOPPING", "it has not stopped yet")
                    else:
                        results[i] = result("DEPOSED" if self.later(request) else "DONE")
            return worker_pb2.ApplyResponse(results=results, term=self.later(request))

    def admit(self, request, context):
        """Refuses a call for another incarnation; otherwise records its term."""
        if request.incarnation != self.incarnation:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the call is meant for another incarnation")
        if request.HasField("term"):
            self.fence = max(self.fence, (request.term.epoch, request.term.number))

    def later(self, request):
        """Returns the highest term seen, if its epoch is higher than that of a call."""
        if request.HasField("term") and self.fence[0] > request.term.epoch:
            return worker_pb2.Term(epoch=self.fence[0], number=self.fence[1])
        return None

    def change(self, request, change):
        """Begins a change. Returns its result, or the task that must stop first."""
        task, version = self.tasks.get(change.task), change.content_version
        if self.later(request):
            return result("DEPOSED")
        if (request.term.epoch, request.term.number) < self.fence:
            return result("STALE")
        if not self.holds():
            return result("REJECTED", "the worker has no lease")
        if not 1 <= len(change.task) <= 1024:
            return result("REJECTED", "a name has from 1 to 1024 bytes")
        if change.op == worker_pb2.OP_REMOVE:
            if task is None:
                return result("DONE")
            if task.state in RUNNING and not task.pinned and self.is_job(task.newest.content):
                return result("REJECTED", "it runs by now, and must not be moved")
            return task if self.end(task) else result("DONE")
        if change.op not in (worker_pb2.OP_ADD, worker_pb2.OP_UPDATE):
            return result("REJECTED", "there is no such operation")
        if task is None and change.op == worker_pb2.OP_UPDATE:
            return result("REJECTED", "the task is not here")
        if task is None:
            task = self.tasks[change.task] = Task(change)
            self.start(task)
            self.touch()
        elif task.state == worker_pb2.STATE_STOPPING:
            return result("STOPPING" if change.op == worker_pb2.OP_ADD else "REJECTED", "it is being stopped")
        elif version > task.newest.content_version:
            task.newest = change
            task.end.set()  # the task is run again with the new content
            if task.state == worker_pb2.STATE_COMPLETED:
                self.start(task)
            self.touch()
        return result("DONE")

    def touch(self):
        """Makes the next report differ from the last one."""
        self.counter += 1
        self.changed.notify_all()

    def start(self, task):
        task.state = worker_pb2.STATE_STARTING
        threading.Thread(target=self.runs, args=(task,), daemon=True).start()

    def end(self, task):
        """Tells a task to stop. Returns whether it is still to stop."""
        self.touch()
        if task.state == worker_pb2.STATE_COMPLETED:
            del self.tasks[task.name]
            return False
        task.state = worker_pb2.STATE_STOPPING
        task.end.set()
        return True

    def runs(self, task):
        """A task's thread: one run after another, until it has completed or must stop."""
        while True:
            with self.changed:
                if task.state == worker_pb2.STATE_STOPPING:
                    del self.tasks[task.name]
                    return self.touch()
                given = task.newest
                task.end.clear()
                task.state = worker_pb2.STATE_RUNNING
                self.touch()
            try:
                done = self.work(task.name, given.content, given.content_version, task.end)
            except Exception:  # a failing task must not end the worker
                log.exception("task %r failed", task.name)
                done = False
            with self.changed:
                if done:  # with this content, even if newer content has arrived
                    self.owed[task.name] = manager_pb2.Completion(
                        task=task.name, content_version=given.content_version, receipt=given.receipt)
                    self.touch()
                if task.newest is not given or task.state == worker_pb2.STATE_STOPPING:
                    continue
                if done:
                    task.state = worker_pb2.STATE_COMPLETED
                    return
                task.state = worker_pb2.STATE_BACKOFF
                self.touch()
            task.end.wait(1)

    def holds(self):
        """Returns whether the lease is valid, so that tasks need not stop yet."""
        return not self.lost and self.sent is not None and now() < self.sent + self.lease * 0.9 - self.stop

    def guard(self):
        """Stops everything before the lease can have ended; otherwise ends the process."""
        while True:
            with self.changed:
                if self.sent is not None and not self.holds():
                    self.give_up("not acknowledged in time")
                if self.lost and self.tasks and now() >= self.gone:
                    os._exit(3)  # the remaining tasks end with the process
                self.changed.wait(0.02)

    def give_up(self, why):
        if not self.lost:
            log.warning("stopping everything: %s", why)
            self.lost = True
            # Tasks have this time to stop, even if the manager has already ended the lease.
            self.gone = min(now() + self.stop, (self.sent or now()) + self.lease * 0.9)
            for task in list(self.tasks.values()):
                self.end(task)

    def register(self):
        return self.manager.Register(manager_pb2.RegisterRequest(
            worker=self.name, incarnation=self.incarnation, address=self.address, draining=self.draining,
            lease={"seconds": int(self.lease), "nanos": int(self.lease % 1 * 1e9)}),
            timeout=self.lease / 4 if self.sent else 6)

    def beat(self):
        return self.manager.Heartbeat(manager_pb2.HeartbeatRequest(
            worker=self.name, incarnation=self.incarnation, draining=self.draining), timeout=self.lease / 4)

    def membership(self):
        """Is a member until the lease is lost, or all tasks have moved."""
        call, shown = self.register, False
        while not self.lost and not (self.draining and (self.alone or not self.tasks)):
            began, pause = now(), min(0.2, self.lease / 12)
            try:
                response = call()
            except grpc.RpcError as error:
                log.info("%s: %s: %s", call.__name__, error.code(), error.details())
                code, registering = error.code(), call == self.register
                if code == grpc.StatusCode.INVALID_ARGUMENT:
                    sys.exit(error.details())
                if code == grpc.StatusCode.NOT_FOUND or registering and code == grpc.StatusCode.FAILED_PRECONDITION:
                    break
                shown = False  # the manager may have restarted or lost the address: register again
                call = self.register if self.sent is None or not registering else self.beat
            else:
                if not shown and call == self.register:
                    log.info("registered with %d tasks", len(self.tasks))
                shown = shown or call == self.register
                call, pause = self.beat if shown else self.register, response.heartbeat.ToNanoseconds() / 1e9
                with self.changed:
                    self.fence = max(self.fence, (response.term.epoch, response.term.number))
                    self.lease = min(self.lease, response.lease.ToNanoseconds() / 1e9)
                    self.sent, self.alone = began, getattr(response, "alone", False)  # only heartbeats have this field
            with self.changed:
                self.changed.wait_for(lambda: self.lost, pause)

    def tell(self):
        """Reports completed tasks to the manager until it answers."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.owed)
                told = list(self.owed.values())[:100]  # a request has at most 256 KiB
            try:
                request = manager_pb2.CompleteRequest(worker=self.name, completions=told)
                outcomes = self.manager.Complete(request, timeout=5).outcomes
            except grpc.RpcError as error:
                log.info("complete: %s: %s", error.code(), error.details())
                outcomes = []
                time.sleep(0.2)
            with self.changed:
                for said, outcome in zip(told, outcomes):
                    if outcome and self.owed[said.task] is said:  # otherwise it is reported again
                        del self.owed[said.task]
                self.changed.notify_all()

    def run(self, listen):
        """Serves, and joins again and again until draining is set and all tasks have moved."""
        server = grpc.server(futures.ThreadPoolExecutor(64), options=SERVER)
        worker_pb2_grpc.add_WorkerServicer_to_server(self, server)
        server.add_insecure_port(listen)
        server.start()
        for part in (self.guard, self.tell):
            threading.Thread(target=part, daemon=True).start()
        while True:
            self.membership()
            with self.changed:
                self.give_up("the membership has ended")
                self.changed.wait_for(lambda: not self.tasks)
                self.changed.wait_for(lambda: not self.draining or not self.owed, 1)
            try:
                self.manager.Leave(manager_pb2.LeaveRequest(worker=self.name, incarnation=self.incarnation), timeout=2)
            except grpc.RpcError as error:
                log.info("leave: %s: %s", error.code(), error.details())
            if self.draining:
                return server.stop(2).wait()
            with self.changed:
                self.incarnation, self.sent, self.lost = secrets.randbits(63) | 1, None, False
                self.touch()


def result(outcome, message=""):
    return worker_pb2.Result(outcome=worker_pb2.Outcome.Value("OUTCOME_" + outcome), message=message)
