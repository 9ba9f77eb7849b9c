-- Tables of replicas, version 1. Applying it again changes nothing.
--
-- Users of the tables need: grant select, insert, update, delete on
-- orchestrator_tables, orchestrator_members to …

-- orchestrator_tables has a row for each name given to postgres.New. Its lock orders
-- the Syncs of that name.
create table if not exists orchestrator_tables (
  name text primary key,
  server uuid not null,       -- View.Server: drawn for each new row and after each loss
  confirmed boolean not null,
  epoch bigint not null,
  leader bigint not null,
  lease bigint not null,      -- the longest there was, in nanoseconds
  members bigint[] not null,  -- their IDs
  origin text not null,       -- the database that drew server
  written xid8 not null       -- the transaction that wrote the row
);

-- orchestrator_members has a row for each member. The heartbeat is part of the key so that
-- the newest version of a row is found first: while a long transaction runs, PostgreSQL
-- keeps all the others. Rows of IDs that orchestrator_tables does not have mean nothing.
create table if not exists orchestrator_members (
  name text,
  id bigint,
  heartbeat bigint not null,
  draining boolean not null,
  passive boolean not null,
  retired boolean not null,
  record json not null,       -- a replica.Member
  written xid8 not null,      -- the transaction that wrote the row
  primary key (name, id, heartbeat)
);

-- orchestrator_sync_1 is replica.Backend.Sync. It is a procedure, because one SQL
-- statement would read as of before it waited for the lock, and because a procedure can
-- commit before the result is sent. Otherwise a client that does not read the result
-- would hold the lock.
--
-- The result is a replica.View as JSON, with the transaction, or null if the member is
-- retired. p_server and p_transaction are those of the caller's last View. p_patience is
-- how long to wait for a lock, in milliseconds, from 1.
create or replace procedure orchestrator_sync_1(
  p_name text, p_id bigint, p_heartbeat bigint, p_lease bigint, p_draining boolean, p_passive boolean, p_record json,
  p_left bigint[], p_evict bigint[], p_evict_heartbeats bigint[], p_retire bigint[],
  p_campaign bigint, p_epoch bigint, p_confirm text, p_server text, p_transaction xid8, p_patience int,
  inout result json)
language plpgsql as $$
declare
  t record;           -- the row of orchestrator_tables, as it will be
  before record;      -- the row as it is stored
  old record;         -- the caller's row of orchestrator_members
  here text;          -- the origin, as it is now
  this xid8;          -- the transaction
  genuine bigint[];   -- the members whose rows this procedure wrote
  gone bigint[];      -- the members that are removed
  members json;
  news boolean := false; -- others should see the result soon
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    commit; -- of nothing: only a new transaction may have another isolation
    set transaction isolation level read committed;
  end if;
  perform set_config('synchronous_commit', 'on', true), set_config('lock_timeout', p_patience::text, true),
    set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true);
  this := pg_current_xact_id();

  -- The timeline is another one after each promotion and each recovery to a point in
  -- time. Where these functions are refused, each start of the server counts as one.
  begin
    select s.system_identifier || '.' || left(pg_walfile_name(pg_current_wal_lsn()), 8) into strict here from pg_control_system() s;
  exception when others then
    here := extract(epoch from pg_postmaster_start_time());
  end;
  here := here || '.' || (select d.oid from pg_database d where d.datname = current_database());

  -- Lock first: each statement below sees what all earlier Syncs have written. A new row
  -- counts as a loss.
  loop
    select x.*, x.xmin = x.written::xid as genuine into t from orchestrator_tables x where x.name = p_name for update;
    exit when found;
    insert into orchestrator_tables values (p_name, gen_random_uuid(), false, 0, 0, 0, '{}', '', '0') on conflict do nothing;
  end loop;

  -- B7: a row whose xmin is not the transaction that this procedure recorded was restored,
  -- or changed by hand. A transaction below one that the caller has seen means that the
  -- whole server was rolled back.
  genuine := array(
    select i.id from unnest(t.members) i (id), lateral (
      select m.xmin = m.written::xid as genuine from orchestrator_members m
      where m.name = p_name and m.id = i.id order by m.heartbeat desc limit 1) m
    where m.genuine);
  if not t.genuine or t.origin <> here or t.members <> genuine or p_server = t.server::text and p_transaction > this then
    delete from orchestrator_members m where m.name = p_name and (m.xmin <> m.written::xid or m.id <> all (genuine));
    t.server := gen_random_uuid();
    t.confirmed := false;
    t.members := genuine;
    update orchestrator_tables x set server = t.server, confirmed = false, members = genuine, origin = here, written = this
      where x.name = p_name;
  end if;
  before := t;

  select * into old from orchestrator_members m
    where m.name = p_name and m.id = p_id and p_id = any (t.members) order by m.heartbeat desc limit 1;
  if old.retired then
    result := null;
    commit;
    return;
  end if;
  if old.id is null then
    insert into orchestrator_members values (p_name, p_id, p_heartbeat, p_draining, p_passive, false, p_record, this);
    t.members := array_remove(t.members, p_id) || p_id; -- it is there if it was deleted since the check
    news := true;
  elsif p_heartbeat > old.heartbeat then
    update orchestrator_members m
      set heartbeat = p_heartbeat, draining = p_draining, passive = p_passive, record = p_record, written = this
      where m.name = p_name and m.id = p_id and m.heartbeat = old.heartbeat;
    news := old.draining <> p_draining or old.passive <> p_passive;
  end if;
  t.lease := greatest(t.lease, p_lease);
  if p_confirm = t.server::text then
    t.confirmed := true;
  end if;
  update orchestrator_members m set retired = true, written = this where m.name = p_name and m.id = any (p_retire);
  if t.confirmed and p_campaign > 0 and p_epoch = t.epoch then
    t.epoch := p_campaign;
    t.leader := p_id;
    news := true;
  end if;
  if cardinality(p_left) > 0 or t.confirmed and cardinality(p_evict) > 0 then
    with removed as (
      delete from orchestrator_members m where m.name = p_name
        and m.id = any (p_left || p_evict) -- so that the index finds them
        and (m.id = any (p_left) or t.confirmed and exists (
          select from unnest(p_evict, p_evict_heartbeats) e (id, heartbeat) where m.id = e.id and m.heartbeat = e.heartbeat))
      returning m.id)
    select array_agg(removed.id) into gone from removed;
    if cardinality(gone) > 0 then
      t.members := array(select i.id from unnest(t.members) i (id) where i.id <> all (gone));
      news := true;
    end if;
  end if;

  select coalesce(json_agg(m.record), '[]') into members from unnest(t.members) i (id), lateral (
    select m.record from orchestrator_members m where m.name = p_name and m.id = i.id order by m.heartbeat desc limit 1) m;
  -- A record that was deleted by hand since the check above is a loss too, which the next
  -- Sync finds. A View without it would say that its owner runs nothing.
  if json_array_length(members) <> cardinality(t.members) then
    raise exception 'a record was deleted during this Sync';
  end if;
  if t is distinct from before then
    update orchestrator_tables x set confirmed = t.confirmed, epoch = t.epoch, leader = t.leader, lease = t.lease, members = t.members, written = this
      where x.name = p_name;
  end if;
  if news then
    perform pg_notify('orchestrator', p_name);
  end if;
  result := json_build_object('Epoch', t.epoch, 'Leader', t.leader, 'Members', members, 'Lease', t.lease,
    'Server', t.server, 'Confirmed', t.confirmed, 'Transaction', this::text);
  commit;
end $$;
