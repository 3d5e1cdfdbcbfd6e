import { counterNames } from "../core/statistics.ts";

/*
 * The functions that write. Each write of a batch is checked and made in turn: a refused one has changed nothing. First
 * all rows are locked in one order, then they are looked at: what another process has committed meanwhile is seen, and
 * no two batches wait for each other. The order: runs by key, slots, sessions by key, and counters at the very end. A
 * later release adds functions with another version, so that processes of both releases can use the database.
 */
export function writeFunctions(schema: string): string {
  return `
  -- Makes the writes of a batch, in their order. Answers a list with null for each write that was made, and else why it
  -- was not. Or, if writes have to bring messages with them, changes nothing and answers which: {"wanted": [0, 2]}.
  CREATE FUNCTION ${schema}.write_v1(writes jsonb, given_time double precision, its_shard integer) RETURNS jsonb
  LANGUAGE plpgsql AS $function$
  DECLARE
    clock double precision := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
    wanted jsonb;
    write jsonb;
    answer jsonb;
    answers jsonb[] := '{}';
    counted jsonb[] := '{}';
  BEGIN
    PERFORM 1 FROM (
      SELECT w ->> 'tenant' AS tenant, w ->> 'run_id' AS run_id FROM jsonb_array_elements(writes) w
      UNION SELECT w -> 'wake' ->> 'tenant', w -> 'wake' ->> 'run_id' FROM jsonb_array_elements(writes) w
    ) k JOIN ${schema}.runs r ON r.tenant = k.tenant AND r.run_id = k.run_id
    ORDER BY r.tenant, r.run_id FOR NO KEY UPDATE OF r;

    SELECT jsonb_agg(x.n - 1) INTO wanted FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
    WHERE x.w -> 'session' ? 'isLazy' AND (
      EXISTS (SELECT 1 FROM ${schema}.sessions s
        WHERE s.tenant = x.w ->> 'tenant' AND s.session_id = x.w -> 'session' ->> 'session_id')
      OR EXISTS (SELECT 1 FROM jsonb_array_elements(writes) o WHERE o ->> 'tenant' = x.w ->> 'tenant'
        AND o -> 'session' ->> 'session_id' = x.w -> 'session' ->> 'session_id' AND (o -> 'session' ->> 'create')::boolean));
    IF wanted IS NOT NULL THEN
      RETURN jsonb_build_object('wanted', wanted);
    END IF;

    PERFORM pg_advisory_xact_lock(k.lock) FROM (
      SELECT DISTINCT ${schema}.slot_lock_v1(coalesce(r.slot, w ->> 'slot')) AS lock
      FROM jsonb_array_elements(writes) w
      LEFT JOIN ${schema}.runs r ON r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id'
      WHERE (w -> 'head' ->> 'holds_slot')::boolean AND coalesce(r.slot, w ->> 'slot', '') <> ''
        AND NOT coalesce(r.holds_slot, false)
      ORDER BY lock
    ) k;

    PERFORM 1 FROM (
      SELECT DISTINCT w ->> 'tenant' AS tenant, w -> 'session' ->> 'session_id' AS session_id
      FROM jsonb_array_elements(writes) w
    ) k JOIN ${schema}.sessions s ON s.tenant = k.tenant AND s.session_id = k.session_id
    ORDER BY s.tenant, s.session_id FOR NO KEY UPDATE OF s;

    FOR write IN SELECT w FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n) ORDER BY n LOOP
      CASE write ->> 'kind'
        WHEN 'create' THEN answer := ${schema}.create_v1(write);
        WHEN 'append' THEN answer := ${schema}.append_v1(write);
        WHEN 'post' THEN answer := ${schema}.post_v1(write, clock);
        WHEN 'claim' THEN answer := ${schema}.claim_v1(write, clock);
        WHEN 'renew' THEN answer := ${schema}.renew_v1(write ->> 'owner', (write ->> 'for_ms')::double precision, clock);
        WHEN 'release' THEN
          answer := NULL;
          DELETE FROM ${schema}.leases l WHERE l.owner = write ->> 'owner';
        WHEN 'session' THEN answer := ${schema}.put_session_v1(write);
      END CASE;
      answers := array_append(answers, answer);
      CONTINUE WHEN answer IS NOT NULL;
      IF write ? 'session' AND write ->> 'kind' <> 'session' THEN
        PERFORM ${schema}.change_session_v1(write ->> 'tenant', write -> 'session');
      END IF;
      IF write ? 'wake' THEN
        PERFORM ${schema}.wake_v1(write -> 'wake' ->> 'tenant', write -> 'wake' ->> 'run_id', clock);
      END IF;
      IF write ? 'counters' THEN
        counted := array_append(counted, write);
      END IF;
    END LOOP;

    INSERT INTO ${schema}.counters AS c (agent_name, shard, ${counterNames.join(", ")})
    SELECT r.agent_name, its_shard,
      ${counterNames.map((name) => `sum((w -> 'counters' ->> '${name}')::double precision)`).join(",\n      ")}
    FROM unnest(counted) w JOIN ${schema}.runs r ON r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id'
    GROUP BY r.agent_name ORDER BY r.agent_name
    ON CONFLICT (agent_name, shard) DO UPDATE SET
      ${counterNames.map((name) => `${name} = c.${name} + excluded.${name}`).join(",\n      ")};
    RETURN to_jsonb(answers);
  END $function$;

  CREATE FUNCTION ${schema}.create_v1(w jsonb) RETURNS jsonb LANGUAGE plpgsql AS $function$
  DECLARE
    head jsonb := w -> 'head';
    added bigint;
    refusal jsonb;
  BEGIN
    IF w ->> 'slot' <> '' AND (head ->> 'holds_slot')::boolean THEN
      refusal := ${schema}.used_v1(w);
      IF refusal IS NOT NULL THEN
        RETURN refusal;
      END IF;
      IF ${schema}.is_full_v1(w ->> 'slot', (w ->> 'slot_max')::double precision) THEN
        RETURN '{"conflict": "full"}';
      END IF;
    END IF;
    LOOP
      INSERT INTO ${schema}.runs (tenant, run_id, agent_name, version, session_id, parent, idempotency_key, slot, slot_max,
        status, epoch, owner, due_at, blocked, holds_slot, finished_at, takeovers, position, created_at)
      VALUES (w ->> 'tenant', w ->> 'run_id', w ->> 'agent_name', w ->> 'version', w ->> 'session_id', w ->> 'parent',
        w ->> 'idempotency_key', w ->> 'slot', (w ->> 'slot_max')::double precision, head ->> 'status',
        (head ->> 'epoch')::integer, head ->> 'owner', (head ->> 'due_at')::double precision, head ->> 'blocked',
        (head ->> 'holds_slot')::boolean, (head ->> 'finished_at')::double precision, (head ->> 'takeovers')::integer,
        (w ->> 'count')::integer, (w ->> 'created_at')::double precision)
      ON CONFLICT DO NOTHING RETURNING id INTO added;
      EXIT WHEN added IS NOT NULL;
      refusal := ${schema}.used_v1(w);
      IF refusal IS NOT NULL THEN
        RETURN refusal;
      END IF;
      -- The run that was in the way has been deleted meanwhile.
    END LOOP;
    INSERT INTO ${schema}.entries (run, position, lines) VALUES (added, 0, w ->> 'lines');
    IF w ? 'labels' THEN
      INSERT INTO ${schema}.labels (run, name, value, tenant)
      SELECT added, l ->> 0, l ->> 1, w ->> 'tenant' FROM jsonb_array_elements(w -> 'labels') l;
    END IF;
    RETURN NULL;
  END $function$;

  -- Why a run with this id or idempotency key cannot be created; null if neither is used.
  CREATE FUNCTION ${schema}.used_v1(w jsonb) RETURNS jsonb LANGUAGE plpgsql AS $function$
  DECLARE
    other text;
  BEGIN
    PERFORM 1 FROM ${schema}.runs r WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id';
    IF FOUND THEN
      RETURN '{"conflict": "exists"}';
    END IF;
    SELECT r.run_id INTO other FROM ${schema}.runs r
    WHERE r.tenant = w ->> 'tenant' AND r.idempotency_key = w ->> 'idempotency_key';
    RETURN CASE WHEN FOUND THEN jsonb_build_object('conflict', 'key_used', 'run_id', other) END;
  END $function$;

  CREATE FUNCTION ${schema}.append_v1(w jsonb) RETURNS jsonb LANGUAGE plpgsql AS $function$
  DECLARE
    run ${schema}.runs;
    head jsonb := w -> 'head';
    is_live boolean := head ->> 'finished_at' IS NULL;
  BEGIN
    SELECT * INTO run FROM ${schema}.runs r
    WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      RETURN '{"conflict": "missing"}';
    END IF;
    IF run.epoch <> (w ->> 'epoch')::integer OR run.position <> (w ->> 'position')::integer THEN
      RETURN jsonb_build_object('conflict', 'changed', 'epoch', run.epoch, 'position', run.position);
    END IF;
    IF run.owner IS NOT NULL AND head ->> 'owner' IS NULL AND is_live AND run.wakes <> (w ->> 'wakes')::integer THEN
      RETURN jsonb_build_object('conflict', 'woken', 'wakes', run.wakes);
    END IF;
    IF ${schema}.lacks_permit_v1(run, head) THEN
      RETURN '{"conflict": "full"}';
    END IF;
    -- A run that was woken without an owner stays due until it has one, ends or is blocked.
    IF run.wakes > 0 AND run.owner IS NULL AND head ->> 'owner' IS NULL AND run.due_at IS NOT NULL AND is_live
      AND head ->> 'blocked' IS NULL
    THEN
      head := head || jsonb_build_object('due_at', least(run.due_at, (head ->> 'due_at')::double precision));
    END IF;
    PERFORM ${schema}.set_head_v1(run, head, (w ->> 'count')::integer);
    PERFORM ${schema}.add_lines_v1(run, w);
    RETURN NULL;
  END $function$;

  CREATE FUNCTION ${schema}.post_v1(w jsonb, clock double precision) RETURNS jsonb LANGUAGE plpgsql AS $function$
  DECLARE
    run ${schema}.runs;
    becomes_due boolean;
  BEGIN
    SELECT * INTO run FROM ${schema}.runs r
    WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      RETURN '{"conflict": "missing"}';
    END IF;
    IF run.finished_at IS NOT NULL THEN
      RETURN '{"conflict": "ended"}';
    END IF;
    becomes_due := w ? 'due' AND run.owner IS NULL AND (run.blocked IS NULL OR w ? 'unblocks');
    UPDATE ${schema}.runs r SET
      status = coalesce(w ->> 'status', r.status),
      blocked = CASE WHEN w ? 'unblocks' THEN NULL ELSE r.blocked END,
      due_at = CASE WHEN becomes_due THEN least(r.due_at, clock) ELSE r.due_at END,
      for_look = r.for_look OR (becomes_due AND w ->> 'due' = 'look'),
      position = r.position + (w ->> 'count')::integer
    WHERE r.id = run.id;
    PERFORM ${schema}.add_lines_v1(run, w);
    RETURN NULL;
  END $function$;

  CREATE FUNCTION ${schema}.claim_v1(w jsonb, clock double precision) RETURNS jsonb LANGUAGE plpgsql AS $function$
  DECLARE
    run ${schema}.runs;
    head jsonb := w -> 'head';
  BEGIN
    SELECT * INTO run FROM ${schema}.runs r
    WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      RETURN '{"conflict": "missing"}';
    END IF;
    IF run.finished_at IS NOT NULL THEN
      RETURN '{"conflict": "ended"}';
    END IF;
    IF run.epoch <> (w ->> 'epoch')::integer OR run.position <> (w ->> 'position')::integer THEN
      RETURN jsonb_build_object('conflict', 'changed', 'epoch', run.epoch, 'position', run.position);
    END IF;
    IF run.owner IS NOT NULL THEN
      PERFORM ${schema}.shorten_leases_v1(clock, run.owner);
      PERFORM 1 FROM ${schema}.leases l WHERE l.owner = run.owner AND l.until > clock;
      IF FOUND THEN
        RETURN '{"conflict": "owned"}';
      END IF;
    END IF;
    IF ${schema}.lacks_permit_v1(run, head) THEN
      RETURN '{"conflict": "full"}';
    END IF;
    -- The process that claims a run checks everything that the run waits for.
    run.wakes := 0;
    PERFORM ${schema}.set_head_v1(run, head, 0);
    RETURN NULL;
  END $function$;

  -- Gives a run another head, and a longer log. A change of owner resets what no write contains.
  CREATE FUNCTION ${schema}.set_head_v1(run ${schema}.runs, head jsonb, count integer) RETURNS void
  LANGUAGE plpgsql AS $function$
  BEGIN
    UPDATE ${schema}.runs r SET
      status = head ->> 'status',
      epoch = (head ->> 'epoch')::integer,
      owner = head ->> 'owner',
      due_at = (head ->> 'due_at')::double precision,
      blocked = head ->> 'blocked',
      holds_slot = (head ->> 'holds_slot')::boolean,
      finished_at = (head ->> 'finished_at')::double precision,
      takeovers = (head ->> 'takeovers')::integer,
      wakes = CASE WHEN head ->> 'owner' IS NOT DISTINCT FROM run.owner THEN run.wakes ELSE 0 END,
      for_look = run.for_look AND head ->> 'owner' IS NULL,
      position = run.position + count
    WHERE r.id = run.id;
  END $function$;

  -- Adds the entries of a write behind those of the run as it was.
  CREATE FUNCTION ${schema}.add_lines_v1(run ${schema}.runs, w jsonb) RETURNS void LANGUAGE plpgsql AS $function$
  BEGIN
    IF w ->> 'lines' <> '' THEN
      INSERT INTO ${schema}.entries (run, position, lines) VALUES (run.id, run.position, w ->> 'lines');
    END IF;
  END $function$;

  -- Whether the head newly holds the run's slot while no permit is free.
  CREATE FUNCTION ${schema}.lacks_permit_v1(run ${schema}.runs, head jsonb) RETURNS boolean
  LANGUAGE plpgsql AS $function$
  BEGIN
    IF run.slot = '' OR run.holds_slot OR NOT (head ->> 'holds_slot')::boolean OR head ->> 'finished_at' IS NOT NULL THEN
      RETURN false;
    END IF;
    RETURN ${schema}.is_full_v1(run.slot, run.slot_max);
  END $function$;

  -- Whether no permit is free. Until the end of the transaction no other one gets a permit of the slot.
  CREATE FUNCTION ${schema}.is_full_v1(key text, most double precision) RETURNS boolean LANGUAGE plpgsql AS $function$
  BEGIN
    PERFORM pg_advisory_xact_lock(${schema}.slot_lock_v1(key));
    RETURN (SELECT count(*) FROM ${schema}.runs r WHERE r.finished_at IS NULL AND r.holds_slot AND r.slot <> ''
      AND r.slot = key) >= most;
  END $function$;

  -- The lock of a slot. A row for each slot would have to be deleted some day.
  CREATE FUNCTION ${schema}.slot_lock_v1(key text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $function$
    SELECT hashtextextended('${schema.replaceAll("'", "''")} slot ' || key, 0);
  $function$;

  CREATE FUNCTION ${schema}.wake_v1(its_tenant text, its_id text, clock double precision) RETURNS void
  LANGUAGE plpgsql AS $function$
  BEGIN
    UPDATE ${schema}.runs r SET
      wakes = r.wakes + 1,
      due_at = CASE WHEN r.owner IS NULL THEN least(r.due_at, clock) ELSE r.due_at END
    WHERE r.tenant = its_tenant AND r.run_id = its_id AND r.finished_at IS NULL
      AND (r.owner IS NOT NULL OR r.blocked IS NULL);
  END $function$;

  CREATE FUNCTION ${schema}.renew_v1(its_owner text, its_ms double precision, clock double precision) RETURNS jsonb
  LANGUAGE plpgsql AS $function$
  BEGIN
    INSERT INTO ${schema}.leases (owner, until, for_ms) VALUES (its_owner, clock + its_ms, its_ms)
    ON CONFLICT (owner) DO UPDATE SET until = excluded.until, for_ms = excluded.for_ms;
    -- An expired owner without runs needs no row.
    DELETE FROM ${schema}.leases l WHERE l.owner IN (
      SELECT e.owner FROM ${schema}.leases e WHERE e.until <= clock AND NOT EXISTS (
        SELECT 1 FROM ${schema}.runs r WHERE r.finished_at IS NULL AND r.owner IS NOT NULL AND r.owner = e.owner)
      FOR UPDATE OF e SKIP LOCKED);
    RETURN NULL;
  END $function$;

  -- Cuts short the leases that now last longer than requested: the clock was set back. Of one owner, or with null of all.
  CREATE FUNCTION ${schema}.shorten_leases_v1(clock double precision, its_owner text) RETURNS void LANGUAGE plpgsql AS $function$
  BEGIN
    UPDATE ${schema}.leases l SET until = clock + l.for_ms WHERE l.owner IN (
      SELECT e.owner FROM ${schema}.leases e WHERE e.until > clock + e.for_ms AND e.owner = coalesce(its_owner, e.owner)
      FOR UPDATE SKIP LOCKED);
  END $function$;

  CREATE FUNCTION ${schema}.change_session_v1(its_tenant text, change jsonb) RETURNS void LANGUAGE plpgsql AS $function$
  DECLARE
    session ${schema}.sessions;
  BEGIN
    IF (change ->> 'create')::boolean THEN
      session := ${schema}.open_session_v1(its_tenant, change);
    ELSE
      SELECT * INTO session FROM ${schema}.sessions s
      WHERE s.tenant = its_tenant AND s.session_id = change ->> 'session_id' FOR NO KEY UPDATE;
      IF NOT FOUND THEN
        RETURN;
      END IF;
    END IF;
    IF change ? 'isLazy' THEN
      -- The session has been made since the locks were taken. Now the messages are wanted.
      RAISE EXCEPTION 'The session exists now.' USING ERRCODE = '40001';
    END IF;
    PERFORM ${schema}.add_messages_v1(session.id, session.length, change -> 'messages');
    UPDATE ${schema}.sessions s SET
      length = session.length + jsonb_array_length(change -> 'messages'),
      state = coalesce(change ->> 'state', s.state),
      changed_at = (change ->> 'at')::double precision
    WHERE s.id = session.id;
  END $function$;

  -- Makes a session or replaces it as a whole. With 'isNew' one that exists stays, and the answer is false.
  CREATE FUNCTION ${schema}.put_session_v1(w jsonb) RETURNS jsonb LANGUAGE plpgsql AS $function$
  DECLARE
    change jsonb := w -> 'session';
    session ${schema}.sessions;
  BEGIN
    IF w ? 'isNew' THEN
      INSERT INTO ${schema}.sessions (tenant, session_id, length, state, changed_at)
      VALUES (w ->> 'tenant', change ->> 'session_id', 0, 'null', (change ->> 'at')::double precision)
      ON CONFLICT DO NOTHING;
      IF NOT FOUND THEN
        RETURN 'false';
      END IF;
    END IF;
    session := ${schema}.open_session_v1(w ->> 'tenant', change);
    DELETE FROM ${schema}.messages m WHERE m.session = session.id;
    PERFORM ${schema}.add_messages_v1(session.id, 0, change -> 'messages');
    UPDATE ${schema}.sessions s SET
      length = jsonb_array_length(change -> 'messages'),
      state = change ->> 'state',
      changed_at = (change ->> 'at')::double precision
    WHERE s.id = session.id;
    RETURN NULL;
  END $function$;

  -- The locked row of a session, which is made if there is none.
  CREATE FUNCTION ${schema}.open_session_v1(its_tenant text, change jsonb) RETURNS ${schema}.sessions
  LANGUAGE plpgsql AS $function$
  DECLARE
    session ${schema}.sessions;
  BEGIN
    LOOP
      SELECT * INTO session FROM ${schema}.sessions s
      WHERE s.tenant = its_tenant AND s.session_id = change ->> 'session_id' FOR NO KEY UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO ${schema}.sessions (tenant, session_id, length, state, changed_at)
      VALUES (its_tenant, change ->> 'session_id', 0, 'null', (change ->> 'at')::double precision)
      ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN session;
  END $function$;

  CREATE FUNCTION ${schema}.add_messages_v1(its_session bigint, start integer, added jsonb) RETURNS void
  LANGUAGE sql AS $function$
    INSERT INTO ${schema}.messages (session, position, message)
    SELECT its_session, start + m.n - 1, m.message FROM jsonb_array_elements_text(added) WITH ORDINALITY m (message, n);
  $function$;
`;
}
