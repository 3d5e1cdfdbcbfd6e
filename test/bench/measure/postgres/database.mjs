import pg from "pg";

/** Where the server listens that `bench.ts` has started: `{ host, port, log }`. */
export const server = JSON.parse(process.env.CADENZA_BENCH_POSTGRES ?? "{}");

/** A pool of connections to the server. */
export function newPool(max) {
  const pool = new pg.Pool({ host: server.host, port: server.port, user: "postgres", database: "postgres", max });
  return pool.on("error", () => undefined);
}

/** Runs a measurement in a schema that is deleted after it. */
export async function inSchema(measure) {
  const schema = `bench_${process.pid}`;
  const pool = newPool(1);
  try {
    return await measure(schema, pool);
  } finally {
    await pool.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
    await pool.end();
  }
}
