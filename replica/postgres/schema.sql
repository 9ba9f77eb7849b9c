-- The tables of replicas, version 1. Applying this again changes nothing.
--
-- Whoever uses the tables needs the rights to select, insert, update and delete in all of them
--
-- A record is a value of package replica as JSON. Its texts are escaped as in Go, so that any bytes
-- fit in any encoding. Column written has the transaction that wrote the row. If the row's xmin is
-- another one, something else has written it, such as the restore of a dump.

-- replica_tables has a row for each name given to postgres.New. Its lock orders the Syncs. The
-- revision is in the key, so that the newest version of the row is found first: while a long
-- transaction runs, PostgreSQL keeps all the others.
create table if not exists replica_tables (
  name text,
  revision bigint,            -- rises with each change, but for heartbeats and reports
  server text not null,       -- View.Server: drawn for each new row and after each loss
  confirmed boolean not null,
  listed boolean not null,
  epoch bigint not null,      -- of the last election, which leader has won
  leader bigint not null,
  batch bigint not null,      -- the version of the last batch
  seen bigint not null,       -- the highest epoch, version and Applied in any record
  lease bigint not null,      -- the longest there was, in nanoseconds
  ordered bigint not null,    -- the revision of the last change of orders
  orders bigint not null,     -- the number of rows in replica_orders, and in replica_tasks
  tasks bigint not null,
  asks jsonb not null,        -- requests of operators: verb, target, replica.Ask
  origin text not null,       -- the database that drew server
  written xid8 not null,
  primary key (name, revision)
);

-- replica_members has a row for each member.
create table if not exists replica_members (
  name text,
  id bigint check (id >= 0),
  revision bigint not null,   -- of its last change
  record jsonb not null,      -- a replica.Member; the heartbeat and the epoch are in replica_beats
  written xid8 not null,
  primary key (name, id)
);
create index if not exists orchestrator_members_revision on replica_members (name, revision);

-- replica_beats has the heartbeat of each member, in the key for the same reason as the revision
-- of replica_tables.
create table if not exists replica_beats (
  name text,
  id bigint check (id >= 0),
  heartbeat bigint check (heartbeat > 0),
  epoch bigint not null,      -- replica.Member.Epoch
  written xid8 not null,
  primary key (name, id, heartbeat)
);

-- replica_reports has a row for each member that has reported.
create table if not exists replica_reports (
  name text,
  id bigint check (id >= 0),
  heartbeat bigint check (heartbeat > 0), -- of the Sync that stored it
  record jsonb not null,      -- a replica.Report
  written xid8 not null,
  primary key (name, id, heartbeat)
);
create index if not exists orchestrator_reports_written on replica_reports (name, written);

-- replica_orders has a row for each task that a member is ordered to run or to stop.
create table if not exists replica_orders (
  name text,
  member bigint,
  task text,                  -- replica_key_1 of its name
  revision bigint not null,
  stop boolean not null,
  record jsonb not null,      -- a replica.Order
  written xid8 not null,
  primary key (name, member, task)
);
-- member + 0, because a plan that is made while the table is empty would take (name, member, revision)
-- for as good a way to one row as the primary key.
create index if not exists orchestrator_orders_revision on replica_orders (name, (member + 0), revision);

-- replica_counts has a row for each member with orders, so that a row deleted by hand is missed.
create table if not exists replica_counts (
  name text,
  member bigint,
  revision bigint,            -- of its last change, in the key for the same reason
  runs bigint not null,       -- orders to run
  orders bigint not null,     -- all orders
  primary key (name, member, revision)
);

-- replica_tasks has the list in force.
create table if not exists replica_tasks (
  name text,
  task text,
  record jsonb not null,      -- a replica.Task
  written xid8 not null,
  primary key (name, task)
);

-- replica_removed has the IDs that were removed within a day or that orders still name.
create table if not exists replica_removed (
  name text,
  id bigint check (id >= 0),
  revision bigint not null,
  at timestamptz not null,
  primary key (name, id)
);
create index if not exists orchestrator_removed_revision on replica_removed (name, revision);

-- replica_key_1 returns a task's name as it is in keys, whose length PostgreSQL bounds.
create or replace function replica_key_1(p_task text) returns text language sql immutable as $$
  select case when length(p_task) <= 600 then p_task else left(p_task, 500) || encode(sha256(convert_to(p_task, 'UTF8')), 'hex') end
$$;

-- replica_origin_1 returns what names this database. The timeline is another one after each
-- promotion and each recovery to a point in time. Where the functions are refused, each start of
-- the server counts as one.
create or replace function replica_origin_1() returns text language plpgsql stable as $$
declare
  here text;
begin
  begin
    select s.system_identifier || '.' || left(pg_walfile_name(pg_current_wal_lsn()), 8) into strict here from pg_control_system() s;
  exception when insufficient_privilege or feature_not_supported or undefined_function then
    here := extract(epoch from pg_postmaster_start_time());
  end;
  return here || '.' || (select d.oid from pg_database d where d.datname = current_database());
end $$;

-- replica_missed_1 reports whether orders or tasks are not as they were written. Of the orders it
-- looks at those of one member, or of all if p_member is null.
create or replace function replica_missed_1(p_name text, p_member bigint, p_orders bigint, p_tasks bigint) returns boolean language sql stable
  set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
  select
    exists (
      select from (
        select c.member, c.runs, c.orders from replica_counts c
          where c.name = p_name and c.member between coalesce(p_member, 0) and coalesce(p_member, 9223372036854775807)) c
      full join (
        select o.member, count(*) filter (where not o.stop) as runs, count(*) + count(*) filter (where o.xmin <> o.written::xid) as orders
          from replica_orders o
          where o.name = p_name and o.member between coalesce(p_member, 0) and coalesce(p_member, 9223372036854775807)
          group by o.member) o using (member)
      where (c.runs, c.orders) is distinct from (o.runs, o.orders))
    or p_orders <> (select coalesce(sum(c.orders), 0) from replica_counts c where c.name = p_name)
    or p_member is null and p_tasks <> (
      select count(*) + count(*) filter (where d.xmin <> d.written::xid) from replica_tasks d where d.name = p_name)
$$;

-- replica_view_1 returns what a replica.Query shows. The result is null if replica_sync_1 is needed:
-- there is no such table, something else has written its row, or something is missed. Reports are
-- written without the lock, so those are new that the snapshot of the last View did not see.
create or replace function replica_view_1(p_name text, q jsonb) returns json language plpgsql stable
  set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  t record;
  self bigint := q->'Self';
  follow boolean := q->'Follow';
  -- A View's revision: a number, whether it follows, the snapshot, and the newest report in it.
  -- After a crash the numbers of transactions may be below those of the snapshot again.
  revision text[] := string_to_array(q->>'Since', ' ');
  since bigint := 0;
  snapshot pg_snapshot;
  newest xid8;
  members json; gone json; beats json; orders json; reports json; tasks json;
begin
  select x.*, x.xmin = x.written::xid as genuine into t from replica_tables x where x.name = p_name order by x.revision desc limit 1;
  if not found or not t.genuine then
    return null;
  end if;
  if t.server = q->>'Server' and follow::text = revision[2] then
    since := revision[1];
    snapshot := revision[3];
    newest := coalesce(revision[4], '0');
  elsif replica_missed_1(p_name, case when follow then null else self end, t.orders, t.tasks) then
    return null;
  end if;
  if t.revision > since then
    select json_object_agg(m.id, case when m.xmin = m.written::xid then m.record || jsonb_build_object('epoch', b.epoch::text) end) into members
      from replica_members m, lateral (
        select b.epoch from replica_beats b where b.name = p_name and b.id = m.id order by b.heartbeat desc limit 1) b
      where m.name = p_name and m.revision > since;
    if since > 0 then
      select json_agg(r.id) into gone from replica_removed r where r.name = p_name and r.revision > since;
    else
      select json_agg(r.id) into gone from replica_counts c join replica_removed r on r.name = p_name and r.id = c.member where c.name = p_name;
    end if;
  end if;
  select json_object_agg(i.id, b.heartbeat) into beats
    from unnest(case when (q->'Beats')::boolean then array(select m.id from replica_members m where m.name = p_name)
      else array[self, nullif(t.leader, self)] end) i (id), lateral (
      select b.heartbeat from replica_beats b where b.name = p_name and b.id = i.id order by b.heartbeat desc limit 1) b;
  if t.ordered > since and follow then
    select json_agg(o.record) into orders
      from unnest(case when since > 0 then array(select m.id from replica_members m where m.name = p_name)
        else array(select c.member from replica_counts c where c.name = p_name) end) i (id), lateral (
        select o.record from replica_orders o where o.name = p_name and o.member + 0 = i.id and o.revision > since) o;
  elsif t.ordered > since then
    select json_agg(o.record) into orders from replica_orders o where o.name = p_name and o.member + 0 = self and o.revision > since;
  end if;
  if follow and since = 0 then
    select json_object_agg(m.id, r.record) into reports from replica_members m, lateral (
      select case when r.xmin = r.written::xid then r.record end as record from replica_reports r
        where r.name = p_name and r.id = m.id order by r.heartbeat desc limit 1) r
      where m.name = p_name;
    select json_agg(d.record) into tasks from replica_tasks d where d.name = p_name;
  elsif follow then
    select json_object_agg(r.id, r.record) into reports from (
      select r.id, r.record from replica_reports r where r.name = p_name and r.written > newest
      union all select r.id, r.record from pg_snapshot_xip(snapshot) x (id), lateral (
        select r.id, r.record from replica_reports r where r.name = p_name and r.written = x.id and x.id <= newest) r) r;
  end if;
  return json_build_object(
    'Server', t.server, 'Confirmed', t.confirmed, 'Listed', t.listed, 'Epoch', t.epoch, 'Leader', t.leader, 'Seen', t.seen, 'Lease', t.lease,
    'Revision', concat_ws(' ', t.revision, follow::text, pg_current_snapshot(), (select r.written from replica_reports r
      where follow and r.name = p_name and r.written < pg_snapshot_xmax(pg_current_snapshot()) order by r.written desc limit 1)),
    'Full', since = 0, 'Number', t.revision,
    'Members', members, 'Gone', gone, 'Beats', beats, 'Orders', orders, 'Reports', reports, 'Tasks', tasks, 'Requests', t.asks,
    'OrderCount', coalesce((select c.runs from replica_counts c where c.name = p_name and c.member = self order by c.revision desc limit 1), 0),
    'Stored', coalesce((select case when r.xmin = r.written::xid then r.heartbeat end from replica_reports r
      where r.name = p_name and r.id = self order by r.heartbeat desc limit 1), 0));
end $$;

-- replica_begin_1 prepares a transaction that writes. The settings end with it.
create or replace function replica_begin_1(p_patience int) returns xid8 language plpgsql as $$
begin
  perform set_config('synchronous_commit', 'on', true), set_config('lock_timeout', p_patience::text, true),
    set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true);
  return pg_current_xact_id();
end $$;

-- replica_report_1 stores a report in place of the newest one.
create or replace function replica_report_1(p_name text, p_id bigint, p_heartbeat bigint, p_report jsonb, p_this xid8) returns void language plpgsql as $$
begin
  update replica_reports r set heartbeat = p_heartbeat, record = p_report, written = p_this where r.name = p_name and r.id = p_id
    and r.heartbeat = (select s.heartbeat from replica_reports s where s.name = p_name and s.id = p_id order by s.heartbeat desc limit 1);
  if not found then
    insert into replica_reports values (p_name, p_id, p_heartbeat, p_report, p_this);
  end if;
end $$;

-- replica_beat_1 is a Sync that changes no more than a heartbeat, an epoch and a report. It needs
-- no lock: it and an eviction meet at the row of the heartbeat. The result is null if replica_sync_1 is
-- needed.
create or replace procedure replica_beat_1(p_name text, u jsonb, p_patience int, inout result json) language plpgsql as $$
declare
  t record;
  self bigint := u->'Self';
  beat bigint := u->'Member'->>'heartbeat';
  this xid8;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    commit; -- of nothing: only a new transaction may have another isolation
    set transaction isolation level read committed;
  end if;
  this := replica_begin_1(p_patience);
  update replica_beats b set heartbeat = beat, epoch = (u->'Member'->>'epoch')::bigint, written = this
    where b.name = p_name and b.id = self and b.heartbeat = (u->'Acked'->'Heartbeat')::bigint and b.heartbeat < beat and b.xmin = b.written::xid;
  if found then
    if u->'Report' <> 'null' then
      perform replica_report_1(p_name, self, beat, u->'Report', this);
    end if;
    select x.*, x.xmin = x.written::xid as genuine into t from replica_tables x where x.name = p_name order by x.revision desc limit 1;
    if t.genuine and t.server = u->>'Server' and t.origin = replica_origin_1()
        and exists (select from replica_members m where m.name = p_name and m.id = self and m.xmin = m.written::xid)
        and t.revision >= (u->'Acked'->'Revision')::bigint and t.seen >= (u->'Seen')::bigint then
      result := replica_view_1(p_name, u);
    end if;
  end if;
  if result is null then
    rollback;
  else
    commit;
  end if;
end $$;

-- replica_remove_1 removes a member and its report. Its orders stay.
create or replace function replica_remove_1(p_name text, p_id bigint, p_revision bigint) returns void language plpgsql as $$
begin
  delete from replica_beats b where b.name = p_name and b.id = p_id;
  delete from replica_members m where m.name = p_name and m.id = p_id;
  delete from replica_reports r where r.name = p_name and r.id = p_id;
  insert into replica_removed values (p_name, p_id, p_revision, now()) on conflict (name, id) do update set revision = excluded.revision;
end $$;

-- replica_sync_1 is Backend.Sync. It is a procedure, because one SQL statement would read as of
-- before it waited for the lock, and because a procedure can commit before the result is sent.
-- Otherwise a client that does not read the result would hold the lock. p_patience is how long to
-- wait for a lock, in milliseconds.
create or replace procedure replica_sync_1(p_name text, u jsonb, p_patience int, inout result json) language plpgsql as $$
declare
  t record;            -- the row of replica_tables as it will be
  before record;       -- the row as it is stored
  old record;          -- the caller's row of replica_beats
  x record;
  o jsonb;
  counts replica_counts;
  touched bigint[];    -- members that something concerns: other orders, or what a leader must know
  everybody boolean := false; -- it concerns all
  self bigint := u->'Self';
  beat bigint := u->'Member'->>'heartbeat';
  b jsonb := nullif(u->'Batch', 'null');
  here text := replica_origin_1();
  acked boolean;       -- something was acknowledged to the caller in this Server
  removed boolean;     -- the caller's ID is
  this xid8;
begin
  -- Lock first: each statement below sees what all earlier Syncs have written. A new row counts as
  -- a loss. It is made in a transaction of its own, because who has its lock waits for that of the
  -- table. The key has a revision, so it does not keep others from making another row.
  loop
    if current_setting('transaction_isolation') <> 'read committed' then
      commit; -- of nothing: only a new transaction may have another isolation
      set transaction isolation level read committed;
    end if;
    this := replica_begin_1(p_patience);
    select r.*, r.xmin = r.written::xid as genuine into t from replica_tables r where r.name = p_name order by r.revision desc limit 1 for update;
    exit when found;
    lock table replica_tables in share row exclusive mode;
    insert into replica_tables
      select p_name, 1, '', false, false, 0, 0, 0, 0, 0, 1, 0, 0, '{"drain": {}, "hold": {}, "restart": {}}', '', '0'
      where not exists (select from replica_tables r where r.name = p_name);
    commit;
  end loop;
  select r.heartbeat, r.xmin = r.written::xid as genuine into old
    from replica_beats r where r.name = p_name and r.id = self order by r.heartbeat desc limit 1 for update; -- waits for its replica_beat_1
  removed := exists (select from replica_removed r where r.name = p_name and r.id = self);

  -- B7: signs that acknowledged data may be lost.
  acked := u->'Acked'->>'Server' = t.server;
  if not t.genuine or t.origin <> here or t.epoch not between 0 and 1::bigint << 62 or t.lease not between 0 and 120000000000
      or old.heartbeat is not null
        and not (old.genuine and exists (select from replica_members m where m.name = p_name and m.id = self and m.xmin = m.written::xid))
      or acked and t.revision < (u->'Acked'->'Revision')::bigint
      or acked and not removed and coalesce(old.heartbeat, 0) < (u->'Acked'->'Heartbeat')::bigint
      or ((u->'Campaign')::bigint > 0 or (u->'Check')::boolean) and replica_missed_1(p_name, null, t.orders, t.tasks) then
    delete from replica_beats r where r.name = p_name and r.xmin <> r.written::xid;
    delete from replica_members m where m.name = p_name
      and (m.xmin <> m.written::xid or not exists (select from replica_beats r where r.name = p_name and r.id = m.id));
    delete from replica_beats r where r.name = p_name and not exists (select from replica_members m where m.name = p_name and m.id = r.id);
    delete from replica_reports r where r.name = p_name and r.xmin <> r.written::xid;
    delete from replica_orders r where r.name = p_name and r.xmin <> r.written::xid;
    delete from replica_tasks d where d.name = p_name and d.xmin <> d.written::xid;
    delete from replica_tables r where r.name = p_name and r.revision <> t.revision; -- inserted by hand
    delete from replica_counts c where c.name = p_name;
    t.revision := case when t.revision between 0 and 1::bigint << 61 then t.revision + 1 else 1 end; -- the row may have anything
    insert into replica_counts select p_name, r.member, t.revision, count(*) filter (where not r.stop), count(*)
      from replica_orders r where r.name = p_name group by r.member;
    update replica_tables r
      set revision = t.revision, server = gen_random_uuid(), confirmed = false, listed = false, epoch = 0, leader = 0,
        seen = case when r.seen between 0 and (1::bigint << 61) - 1 then r.seen else 0 end,
        lease = least(greatest(r.lease, 0), 120000000000),
        asks = case when t.genuine then r.asks else '{"drain": {}, "hold": {}, "restart": {}}' end,
        ordered = t.revision, orders = (select count(*) from replica_orders d where d.name = p_name),
        tasks = (select count(*) from replica_tasks d where d.name = p_name), origin = here, written = this
      where r.name = p_name;
    perform pg_notify('orchestrator', '9223372036854775807 * ' || p_name);
  elsif t.server = u->>'Server' and removed then
    result := '{"Evicted": true}';
    commit;
    return;
  elsif t.server = u->>'Server' and beat > coalesce(old.heartbeat, 0) then
    before := t;
    t.revision := t.revision + 1;
    t.lease := greatest(t.lease, least((u->'Member'->'lease_ns')::bigint, 120000000000));
    t.seen := greatest(t.seen, (u->'Seen')::bigint);
    t.confirmed := t.confirmed or (u->'Confirm')::boolean;
    if old.heartbeat is null then
      insert into replica_beats values (p_name, self, beat, (u->'Member'->>'epoch')::bigint, this);
    else
      update replica_beats r set heartbeat = beat, epoch = (u->'Member'->>'epoch')::bigint, written = this
        where r.name = p_name and r.id = self and r.heartbeat = old.heartbeat;
    end if;
    if old.heartbeat is distinct from (u->'Acked'->'Heartbeat')::bigint or (u->'News')::boolean then
      insert into replica_members values (p_name, self, t.revision, u->'Member', this)
        on conflict (name, id) do update set revision = excluded.revision, record = excluded.record, written = excluded.written;
      touched := array[t.leader];
      everybody := self = t.leader;
    end if;
    if u->'Report' <> 'null' then
      perform replica_report_1(p_name, self, beat, u->'Report', this);
    end if;

    for o in select value from jsonb_array_elements(nullif(u->'Asks', 'null')) loop
      t.asks := case o->>'verb'
        when 'undrain' then t.asks #- array['drain', coalesce(o->>'target', '')]
        when 'release' then t.asks #- array['hold', coalesce(o->>'target', '')]
        else jsonb_set(t.asks, array[o->>'verb', coalesce(o->>'target', '')], o) end;
    end loop;

    if t.confirmed and (u->'Epoch')::bigint = t.epoch and (u->'Campaign')::bigint > t.epoch then
      t.epoch := u->'Campaign';
      t.leader := self;
      t.batch := t.epoch;
      t.seen := greatest(t.seen, t.epoch);
      delete from replica_removed r where r.name = p_name and r.at < now() - interval '1 day'
        and not exists (select from replica_counts c where c.name = p_name and c.member = r.id);
    end if;

    if t.leader = self and (b->'Epoch')::bigint = t.epoch and (b->'Version')::bigint > t.batch then -- O4
      t.batch := b->'Version';
      t.seen := greatest(t.seen, t.batch);
      t.listed := t.listed or (b->'Listed')::boolean;
      -- All orders at once, and by key whatever the plan: the limit keeps it from being another join.
      -- A member is not told of orders that are deleted.
      for x in
        with changed as materialized (
          select (c->>'member')::bigint as member, replica_key_1(c->>'task') as task, coalesce((c->'stop')::boolean, false) as stop, c as record, dropped
          from (select value as c, true as dropped from jsonb_array_elements(nullif(b->'Dropped', 'null'))
            union all select value, false from jsonb_array_elements(nullif(b->'Orders', 'null'))) c),
        known as materialized (
          select c.*, r.at, r.stop as was from changed c left join lateral (
            select r.ctid as at, r.stop from replica_orders r where r.name = p_name and r.member = c.member and r.task = c.task limit 1) r on true),
        deleted as (
          delete from replica_orders r where r.ctid = any (array(select c.at from known c where c.dropped and c.at is not null))),
        written as (
          insert into replica_orders select p_name, c.member, c.task, t.revision, c.stop, c.record, this from known c where not c.dropped
            on conflict (name, member, task) do update
            set revision = excluded.revision, stop = excluded.stop, record = excluded.record, written = excluded.written)
        select c.member, bool_or(not c.dropped) as news, sum((not c.dropped and not c.stop)::int - coalesce(not c.was, false)::int) as runs,
          sum((not c.dropped)::int - (c.was is not null)::int) as orders from known c group by c.member
      loop
        if x.news then
          t.ordered := t.revision;
          touched := touched || x.member;
        end if;
        t.orders := t.orders + x.orders;
        select c.* into counts from replica_counts c where c.name = p_name and c.member = x.member order by c.revision desc limit 1;
        delete from replica_counts c where c.name = p_name and c.member = x.member and c.revision = counts.revision;
        if coalesce(counts.orders, 0) + x.orders <> 0 then
          insert into replica_counts values (p_name, x.member, t.revision, coalesce(counts.runs, 0) + x.runs, coalesce(counts.orders, 0) + x.orders);
        end if;
      end loop;
      for o in select value from jsonb_array_elements(nullif(b->'Tasks', 'null')) loop
        update replica_tasks d set record = o, written = this where d.name = p_name and d.task = replica_key_1(o->>'name');
        if not found then
          insert into replica_tasks values (p_name, replica_key_1(o->>'name'), o, this);
          t.tasks := t.tasks + 1;
        end if;
      end loop;
      for x in select value as task from jsonb_array_elements_text(nullif(b->'Deleted', 'null')) loop
        delete from replica_tasks d where d.name = p_name and d.task = replica_key_1(x.task);
        t.tasks := t.tasks - found::int;
      end loop;
      for x in select value as task from jsonb_array_elements_text(nullif(b->'Restarted', 'null')) loop
        t.asks := t.asks #- array['restart', x.task];
      end loop;
      for x in select e.key::bigint as id, e.value::bigint as heartbeat from jsonb_each(nullif(b->'Evict', 'null')) e loop
        delete from replica_beats r where r.name = p_name and r.id = x.id and r.heartbeat = x.heartbeat;
        if found or x.heartbeat = 0 and not exists (select from replica_beats r where r.name = p_name and r.id = x.id) then
          perform replica_remove_1(p_name, x.id, t.revision);
        end if;
      end loop;
    end if;

    for x in select value::bigint as id from jsonb_array_elements(nullif(u->'Left', 'null')) loop
      perform replica_remove_1(p_name, x.id, t.revision);
      touched := touched || t.leader;
      everybody := everybody or x.id = t.leader;
    end loop;
    if t.asks <> before.asks then
      touched := touched || t.leader;
    end if;

    update replica_tables r
      set revision = t.revision, confirmed = t.confirmed, listed = t.listed, epoch = t.epoch, leader = t.leader, batch = t.batch, seen = t.seen,
        lease = t.lease, ordered = t.ordered, orders = t.orders, tasks = t.tasks, asks = t.asks, written = this
      where r.name = p_name and r.revision = before.revision;
    if everybody or (t.confirmed, t.epoch) <> (before.confirmed, before.epoch) or cardinality(touched) > 200 then
      perform pg_notify('orchestrator', concat_ws(' ', t.revision, '*', p_name));
    elsif touched <> array[self] then
      perform pg_notify('orchestrator', concat_ws(' ', t.revision, array_to_string(touched, ','), p_name));
    end if;
  end if;
  result := replica_view_1(p_name, u);
  commit;
end $$;
