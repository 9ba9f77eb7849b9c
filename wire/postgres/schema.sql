-- The tables of replicas, version 1. Applying this again changes nothing.
--
-- Whoever uses the tables needs the rights to select, insert, update and delete in all of them
--
-- A record is a value of package wire as JSON. Its texts are escaped as in Go, so that any bytes
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
  members bigint[] not null,  -- their IDs
  roster bigint not null,     -- the revision of the last change of members
  ordered bigint not null,    -- the revision of the last change of orders
  orders bigint not null,     -- the number of rows in replica_orders, and in replica_tasks
  tasks bigint not null,
  asks jsonb not null,        -- requests of operators: verb, target, wire.Ask
  origin text not null,       -- the database that drew server
  written xid8 not null,
  primary key (name, revision)
);

-- replica_members has a row for each member, with its heartbeat in the key for the same reason.
create table if not exists replica_members (
  name text,
  id bigint,
  heartbeat bigint,
  revision bigint not null,   -- of the last change, but for heartbeats and epochs
  record jsonb not null,      -- a wire.Member
  written xid8 not null,
  primary key (name, id, heartbeat),
  check (id >= 0 and heartbeat > 0)
);

-- replica_reports has a row for each member that has reported.
create table if not exists replica_reports (
  name text,
  id bigint,
  heartbeat bigint,           -- of the Sync that stored it
  record jsonb not null,      -- a wire.Report
  written xid8 not null,
  primary key (name, id, heartbeat),
  check (id >= 0 and heartbeat > 0)
);
create index if not exists orchestrator_reports_written on replica_reports (name, written);

-- replica_orders has a row for each task that a member is ordered to run or to stop.
create table if not exists replica_orders (
  name text,
  member bigint,
  task text,                  -- replica_key_1 of its name
  revision bigint not null,
  stop boolean not null,
  record jsonb not null,      -- a wire.Order
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
  runs bigint not null,       -- orders to run
  orders bigint not null,     -- all orders
  primary key (name, member)
);

-- replica_tasks has the list in force.
create table if not exists replica_tasks (
  name text,
  task text,
  record jsonb not null,      -- a wire.Task
  written xid8 not null,
  primary key (name, task)
);

-- replica_removed has the IDs that were removed within a day or that orders still name.
create table if not exists replica_removed (
  name text,
  id bigint,
  revision bigint not null,
  at timestamptz not null,
  primary key (name, id),
  check (id >= 0)
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
  exception when others then
    here := extract(epoch from pg_postmaster_start_time());
  end;
  return here || '.' || (select d.oid from pg_database d where d.datname = current_database());
end $$;

-- replica_missed_1 reports whether orders or tasks are not as they were written. Of the orders it
-- looks at those of one member, or of all if p_member is null.
create or replace function replica_missed_1(p_name text, p_member bigint, p_orders bigint, p_tasks bigint) returns boolean language sql stable
  set enable_seqscan = off set enable_bitmapscan = off as $$
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

-- replica_view_1 returns what a wire.Query shows. The result is null if replica_sync_1 is needed:
-- there is no such table, something else has written its row, or something is missed. Reports are
-- written without the lock, so those are new that the snapshot of the last View did not see.
create or replace function replica_view_1(p_name text, q jsonb) returns json language plpgsql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  t record;
  self bigint := q->'Self';
  follow boolean := q->'Follow';
  -- A View's revision: a number, whether it follows, the start of the server, and the snapshot.
  revision text[] := string_to_array(q->>'Since', ' ');
  kind text := follow || '.' || extract(epoch from pg_postmaster_start_time());
  since bigint := 0;
  snapshot pg_snapshot;
  members json; gone json; beats json; orders json; reports json; tasks json;
begin
  select x.*, x.xmin = x.written::xid as genuine into t from replica_tables x where x.name = p_name order by x.revision desc limit 1;
  if not found or not t.genuine then
    return null;
  end if;
  if t.server = q->>'Server' and kind = revision[2] then
    since := revision[1];
    snapshot := revision[3];
  elsif replica_missed_1(p_name, case when follow then null else self end, t.orders, t.tasks) then
    return null;
  end if;
  if t.roster > since then
    select json_object_agg(i.id, m.record) into members from unnest(t.members) i (id), lateral (
      select m.record, m.revision from replica_members m where m.name = p_name and m.id = i.id order by m.heartbeat desc limit 1) m
      where m.revision > since;
    if since > 0 then
      select json_agg(r.id) into gone from replica_removed r where r.name = p_name and r.revision > since;
    else
      select json_agg(r.id) into gone from replica_counts c join replica_removed r on r.name = p_name and r.id = c.member where c.name = p_name;
    end if;
  end if;
  select json_object_agg(i.id, m.heartbeat) into beats
    from unnest(case when (q->'Beats')::boolean then t.members else array[self, nullif(t.leader, self)] end) i (id), lateral (
      select m.heartbeat from replica_members m where m.name = p_name and m.id = i.id order by m.heartbeat desc limit 1) m
    where i.id = any (t.members);
  if t.ordered > since and follow then
    select json_agg(o.record) into orders from replica_counts c, lateral (
      select o.record from replica_orders o where o.name = p_name and o.member + 0 = c.member and o.revision > since) o
      where c.name = p_name;
  elsif t.ordered > since then
    select json_agg(o.record) into orders from replica_orders o where o.name = p_name and o.member + 0 = self and o.revision > since;
  end if;
  if follow and since = 0 then
    select json_object_agg(i.id, r.record) into reports from unnest(t.members) i (id), lateral (
      select case when r.xmin = r.written::xid then r.record end as record from replica_reports r
        where r.name = p_name and r.id = i.id order by r.heartbeat desc limit 1) r;
    select json_agg(d.record) into tasks from replica_tasks d where d.name = p_name;
  elsif follow then
    select json_object_agg(r.id, r.record) into reports from replica_reports r
      where r.name = p_name and r.written >= pg_snapshot_xmin(snapshot) and not pg_visible_in_snapshot(r.written, snapshot);
  end if;
  return json_build_object(
    'Server', t.server, 'Confirmed', t.confirmed, 'Listed', t.listed, 'Epoch', t.epoch, 'Leader', t.leader, 'Seen', t.seen, 'Lease', t.lease,
    'Revision', concat_ws(' ', t.revision, kind, pg_current_snapshot()), 'Full', since = 0, 'Number', t.revision,
    'Members', members, 'Gone', gone, 'Beats', beats, 'Orders', orders, 'Reports', reports, 'Tasks', tasks, 'Requests', t.asks,
    'OrderCount', coalesce((select c.runs from replica_counts c where c.name = p_name and c.member = self), 0),
    'Stored', coalesce((select case when r.xmin = r.written::xid then r.heartbeat end from replica_reports r
      where r.name = p_name and r.id = self order by r.heartbeat desc limit 1), 0));
end $$;

-- replica_begin_1 prepares a transaction that writes. The settings end with it.
create or replace function replica_begin_1(p_patience int) returns xid8 language plpgsql as $$
begin
  perform set_config('synchronous_commit', 'on', true), set_config('lock_timeout', p_patience::text, true),
    set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true);
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
-- no lock: it and an eviction meet at the member's row. The result is null if replica_sync_1 is
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
  update replica_members m set heartbeat = beat, record = u->'Member', written = this
    where m.name = p_name and m.id = self and m.heartbeat = (u->'Acked'->'Heartbeat')::bigint and m.heartbeat < beat and m.xmin = m.written::xid;
  if found then
    if u->'Report' <> 'null' then
      perform replica_report_1(p_name, self, beat, u->'Report', this);
    end if;
    select x.*, x.xmin = x.written::xid as genuine into t from replica_tables x where x.name = p_name order by x.revision desc limit 1;
    if t.genuine and t.server = u->>'Server' and t.origin = replica_origin_1() and self = any (t.members)
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

-- replica_sync_1 is Backend.Sync. It is a procedure, because one SQL statement would read as of
-- before it waited for the lock, and because a procedure can commit before the result is sent.
-- Otherwise a client that does not read the result would hold the lock. p_patience is how long to
-- wait for a lock, in milliseconds.
create or replace procedure replica_sync_1(p_name text, u jsonb, p_patience int, inout result json) language plpgsql as $$
declare
  t record;            -- the row of replica_tables as it will be
  before record;       -- the row as it is stored
  old record;          -- the caller's row of replica_members
  x record;
  o jsonb;
  key text;
  was boolean;         -- stop of the order before; null: there was none
  runs bigint;
  orders bigint;
  touched bigint[];    -- members with other orders
  self bigint := u->'Self';
  beat bigint := u->'Member'->>'heartbeat';
  b jsonb := nullif(u->'Batch', 'null');
  here text := replica_origin_1();
  acked boolean;       -- something was acknowledged to the caller in this Server
  removed boolean;     -- the caller's ID is
  this xid8;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    commit; -- of nothing: only a new transaction may have another isolation
    set transaction isolation level read committed;
  end if;
  this := replica_begin_1(p_patience);

  -- Lock first: each statement below sees what all earlier Syncs have written. A new row counts as
  -- a loss.
  loop
    select r.*, r.xmin = r.written::xid as genuine into t from replica_tables r where r.name = p_name order by r.revision desc limit 1 for update;
    exit when found;
    lock table replica_tables in share row exclusive mode; -- the key has a revision, so it is not enough
    insert into replica_tables
      select p_name, 1, '', false, false, 0, 0, 0, 0, 0, '{}', 1, 1, 0, 0, '{"drain": {}, "hold": {}, "restart": {}}', '', '0'
      where not exists (select from replica_tables r where r.name = p_name);
  end loop;
  select m.heartbeat, m.xmin = m.written::xid as genuine into old
    from replica_members m where m.name = p_name and m.id = self order by m.heartbeat desc limit 1 for update; -- waits for its replica_beat_1
  removed := exists (select from replica_removed r where r.name = p_name and r.id = self);

  -- B7: signs that acknowledged data may be lost.
  acked := u->'Acked'->>'Server' = t.server;
  if not t.genuine or t.origin <> here or t.epoch not between 0 and 1::bigint << 62 or t.lease not between 0 and 120000000000
      or not coalesce(old.genuine, true)
      or acked and t.revision < (u->'Acked'->'Revision')::bigint
      or acked and not removed and coalesce(old.heartbeat, 0) < (u->'Acked'->'Heartbeat')::bigint
      or ((u->'Campaign')::bigint > 0 or (u->'Check')::boolean) and replica_missed_1(p_name, null, t.orders, t.tasks) then
    delete from replica_members m where m.name = p_name and m.xmin <> m.written::xid;
    delete from replica_reports r where r.name = p_name and r.xmin <> r.written::xid;
    delete from replica_orders r where r.name = p_name and r.xmin <> r.written::xid;
    delete from replica_tasks d where d.name = p_name and d.xmin <> d.written::xid;
    delete from replica_tables r where r.name = p_name and r.revision <> t.revision;
    delete from replica_counts c where c.name = p_name;
    insert into replica_counts select p_name, r.member, count(*) filter (where not r.stop), count(*)
      from replica_orders r where r.name = p_name group by r.member;
    t.revision := case when t.revision between 0 and 1::bigint << 61 then t.revision + 1 else 1 end; -- the row may have anything
    update replica_tables r
      set revision = t.revision, server = gen_random_uuid(), confirmed = false, listed = false, epoch = 0, leader = 0,
        seen = case when r.seen between 0 and (1::bigint << 61) - 1 then r.seen else 0 end,
        lease = least(greatest(r.lease, 0), 120000000000), members = array(select distinct m.id from replica_members m where m.name = p_name),
        asks = case when 'object' = all (array[jsonb_typeof(r.asks->'drain'), jsonb_typeof(r.asks->'hold'), jsonb_typeof(r.asks->'restart')]) then r.asks
          else '{"drain": {}, "hold": {}, "restart": {}}' end,
        roster = t.revision, ordered = t.revision, orders = (select count(*) from replica_orders d where d.name = p_name),
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
    if old.heartbeat is null or (u->'News')::boolean then
      t.roster := t.revision;
    end if;
    if old.heartbeat is null then
      insert into replica_members values (p_name, self, beat, t.revision, u->'Member', this);
      t.members := array_remove(t.members, self) || self; -- it is there if its row was deleted by hand
    else
      update replica_members m set heartbeat = beat, record = u->'Member', written = this,
          revision = case when t.roster = t.revision then t.revision else m.revision end
        where m.name = p_name and m.id = self and m.heartbeat = old.heartbeat;
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
      for x in
        select (e.value->>'member')::bigint as member, array_agg(e.value) as changes from (
          select value || '{"drop": true}' as value from jsonb_array_elements(nullif(b->'Dropped', 'null'))
          union all select value from jsonb_array_elements(nullif(b->'Orders', 'null'))) e
        group by 1
      loop
        t.ordered := t.revision;
        touched := touched || x.member;
        runs := 0;
        orders := 0;
        foreach o in array x.changes loop
          key := replica_key_1(o->>'task');
          select r.stop into was from replica_orders r where r.name = p_name and r.member = x.member and r.task = key;
          runs := runs - coalesce((not was)::int, 0);
          orders := orders - (was is not null)::int;
          if o ? 'drop' then
            delete from replica_orders r where r.name = p_name and r.member = x.member and r.task = key;
          else
            was := coalesce((o->'stop')::boolean, false);
            runs := runs + (not was)::int;
            orders := orders + 1;
            insert into replica_orders values (p_name, x.member, key, t.revision, was, o, this)
              on conflict (name, member, task) do update
              set revision = excluded.revision, stop = excluded.stop, record = excluded.record, written = excluded.written;
          end if;
        end loop;
        t.orders := t.orders + orders;
        insert into replica_counts values (p_name, x.member, runs, orders)
          on conflict (name, member) do update set runs = replica_counts.runs + excluded.runs, orders = replica_counts.orders + excluded.orders;
        delete from replica_counts c where c.name = p_name and c.member = x.member and c.orders = 0;
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
        delete from replica_members m where m.name = p_name and m.id = x.id and m.heartbeat = x.heartbeat;
        if found or x.heartbeat = 0 and not exists (select from replica_members m where m.name = p_name and m.id = x.id) then
          t.members := array_remove(t.members, x.id);
          t.roster := t.revision;
          delete from replica_reports r where r.name = p_name and r.id = x.id;
          insert into replica_removed values (p_name, x.id, t.revision, now()) on conflict (name, id) do update set revision = excluded.revision;
        end if;
      end loop;
    end if;

    for x in select value::bigint as id from jsonb_array_elements(nullif(u->'Left', 'null')) loop
      t.members := array_remove(t.members, x.id);
      t.roster := t.revision;
      delete from replica_members m where m.name = p_name and m.id = x.id;
      delete from replica_reports r where r.name = p_name and r.id = x.id;
      insert into replica_removed values (p_name, x.id, t.revision, now()) on conflict (name, id) do update set revision = excluded.revision;
    end loop;

    update replica_tables r
      set revision = t.revision, confirmed = t.confirmed, listed = t.listed, epoch = t.epoch, leader = t.leader, batch = t.batch, seen = t.seen,
        lease = t.lease, members = t.members, roster = t.roster, ordered = t.ordered, orders = t.orders, tasks = t.tasks, asks = t.asks, written = this
      where r.name = p_name and r.revision = before.revision;
    if t.roster = t.revision or (t.confirmed, t.epoch, t.asks) is distinct from (before.confirmed, before.epoch, before.asks) or cardinality(touched) > 200 then
      perform pg_notify('orchestrator', concat_ws(' ', t.revision, '*', p_name));
    elsif touched is not null then
      perform pg_notify('orchestrator', concat_ws(' ', t.revision, array_to_string(touched, ','), p_name));
    end if;
  end if;
  result := replica_view_1(p_name, u);
  commit;
end $$;
