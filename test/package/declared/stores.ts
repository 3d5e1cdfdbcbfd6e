import { natsWaker } from "cadenza/nats";
import { openPostgresStore } from "cadenza/postgres";
import { openSqliteStore } from "cadenza/sqlite";

export const waker = natsWaker({ jetstream: null as never });
export const file = openSqliteStore(":memory:", { durability: { waker } });
export const server = () => openPostgresStore({ pool: null as never });
